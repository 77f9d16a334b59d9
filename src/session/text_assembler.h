// From sampled tokens to the text a client gets: characters are never cut, stop words are found
// across token borders and never sent, and the limits that end a request are judged in
// llama-server's order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "session/request.h"

namespace polykv {

struct TextLimits {
  std::vector<std::string> stop_words;
  int32_t n_indent = 0;         // least indentation of each new line
  int32_t n_predict = -1;       // most tokens; -1: no limit
  int64_t max_predict_ms = -1;  // ends at the first new line after that; <= 0: no limit
};

// What is true of one sampled token besides its text.
struct TokenFacts {
  bool end_of_generation = false;
  bool context_full = false;  // no cell or position is left for another token
  int32_t n_generated = 0;    // tokens sampled so far, this one included
  int64_t predict_ms = 0;     // since the first token
};

class TextAssembler {
 public:
  explicit TextAssembler(TextLimits limits) : limits_(std::move(limits)) {}

  struct Outcome {
    std::string to_send;     // new text for the client; may be empty
    bool delivered = false;  // false: the token's text ends inside a character, nothing is due yet
    bool ended = false;
  };
  // REQUIRES: the last outcome had not ended.
  Outcome Accept(std::string_view token_text, const TokenFacts& facts);

  const std::string& text() const { return text_; }  // without a found stop word
  StopKind stop() const { return stop_; }
  const std::string& stopping_word() const { return stopping_word_; }
  bool has_new_line() const { return has_new_line_; }
  bool truncated() const { return truncated_; }

 private:
  struct StopMatch {
    size_t position;  // std::string::npos: none
    const std::string* word;
  };
  StopMatch FindStopWord(std::string_view unsent, size_t n_last) const;
  size_t FindPartialStopWord(std::string_view unsent) const;
  bool IndentationEnds();

  const TextLimits limits_;
  std::string text_;
  size_t n_sent_ = 0;
  size_t line_start_ = 0;  // of the last new line looked at; 0: none yet
  StopKind stop_ = StopKind::kNone;
  std::string stopping_word_;
  bool has_new_line_ = false;
  bool truncated_ = false;
};

// Length of the longest prefix of `text` that does not end inside a UTF-8 character.
size_t CompleteUtf8Length(std::string_view text);

}  // namespace polykv
