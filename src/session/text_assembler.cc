#include "session/text_assembler.h"

#include <algorithm>

namespace polykv {

size_t CompleteUtf8Length(std::string_view text) {
  const size_t n = text.size();
  for (size_t back = 1; back <= std::min<size_t>(4, n); ++back) {
    const auto byte = static_cast<uint8_t>(text[n - back]);
    if ((byte & 0xC0) == 0x80) continue;  // continuation: its lead byte decides
    const size_t length = (byte & 0xE0) == 0xC0   ? 2
                          : (byte & 0xF0) == 0xE0 ? 3
                          : (byte & 0xF8) == 0xF0 ? 4
                                                  : 1;
    return back < length ? n - back : n;
  }
  return n;
}

TextAssembler::StopMatch TextAssembler::FindStopWord(std::string_view unsent, size_t n_last) const {
  StopMatch match{std::string::npos, nullptr};
  for (const std::string& word : limits_.stop_words) {
    const size_t window = word.size() + n_last;
    const size_t from = unsent.size() > window ? unsent.size() - window : 0;
    const size_t position = unsent.find(word, from);
    if (position < match.position) match = {position, &word};
  }
  return match;
}

size_t TextAssembler::FindPartialStopWord(std::string_view unsent) const {
  size_t first = std::string::npos;
  for (const std::string& word : limits_.stop_words) {
    for (size_t n = std::min(word.size(), unsent.size()); n > 0; --n) {
      if (unsent.ends_with(std::string_view(word).substr(0, n))) {
        first = std::min(first, unsent.size() - n);
        break;
      }
    }
  }
  return first;
}

bool TextAssembler::IndentationEnds() {
  bool ends = false;
  if (line_start_ > 0) {
    size_t end = line_start_;
    while (end < text_.size() && (text_[end] == ' ' || text_[end] == '\t')) ++end;
    if (end < text_.size() && static_cast<int32_t>(end - line_start_) < limits_.n_indent) {
      text_.erase(end);
      ends = true;
    }
  }
  const size_t new_line = text_.find('\n', line_start_);
  if (new_line != std::string::npos) line_start_ = new_line + 1;
  return ends;
}

TextAssembler::Outcome TextAssembler::Accept(std::string_view token_text, const TokenFacts& facts) {
  Outcome outcome;
  text_ += token_text;
  outcome.delivered = CompleteUtf8Length(text_) == text_.size();
  if (outcome.delivered) {
    size_t sent = std::min(n_sent_, text_.size());
    const StopMatch match = FindStopWord(std::string_view(text_).substr(sent), token_text.size());
    bool hold_back = false;
    if (match.word != nullptr) {
      stop_ = StopKind::kStopWord;
      stopping_word_ = *match.word;
      text_.erase(sent + match.position);
      sent = std::min(n_sent_, text_.size());
    } else if (!facts.end_of_generation) {
      hold_back = FindPartialStopWord(std::string_view(text_).substr(sent)) != std::string::npos;
    }
    if (!hold_back) {
      outcome.to_send = text_.substr(sent);
      n_sent_ += outcome.to_send.size();
    }
  }
  // A limit that strikes together with a stop word or the end keeps the name of the stronger
  // reason.
  if (facts.context_full) {
    truncated_ = true;
    stop_ = StopKind::kLimit;
  }
  const bool ended_by_word = stop_ == StopKind::kStopWord;
  if (!ended_by_word && limits_.n_predict >= 0 && facts.n_generated >= limits_.n_predict) {
    stop_ = StopKind::kLimit;
  }
  if (has_new_line_ && limits_.n_indent > 0 && IndentationEnds()) stop_ = StopKind::kLimit;
  if (outcome.to_send.find('\n') != std::string::npos) {
    has_new_line_ = true;
    if (limits_.max_predict_ms > 0 && facts.predict_ms > limits_.max_predict_ms) {
      stop_ = StopKind::kLimit;
    }
  }
  if (facts.end_of_generation) stop_ = StopKind::kEndOfGeneration;
  outcome.ended = stop_ != StopKind::kNone;
  return outcome;
}

}  // namespace polykv
