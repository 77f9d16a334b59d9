#include "api/sse.h"

#include <exception>

#include "api/problem.h"

namespace polykv {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // how soon a client that has gone is noticed

Problem ServerError(const std::exception& error) {
  return {.status = 500, .type = "server_error", .message = error.what()};
}

}  // namespace

CompletionStream::CompletionStream(std::unique_ptr<GenerationSet> set,
                                   std::unique_ptr<ResponseWriter> writer, int32_t ping_interval_s,
                                   std::function<bool()> should_stop, const Clock* clock,
                                   const GenerationMessage& first)
    : set_(std::move(set)),
      writer_(std::move(writer)),
      ping_interval_us_(ping_interval_s > 0 ? TimeUs{ping_interval_s} * 1'000'000 : 0),
      should_stop_(std::move(should_stop)),
      clock_(clock),
      last_output_us_(clock->NowUs()) {
  writer_->StreamText(first.index, first.event, &pending_);
}

bool CompletionStream::Next(std::string* out) {
  bool more = false;
  try {
    more = Advance(out);
  } catch (const std::exception& error) {
    *out += writer_->StreamError(ProblemJson(ServerError(error)));
  }
  last_output_us_ = clock_->NowUs();
  return more;
}

bool CompletionStream::Advance(std::string* out) {
  if (!pending_.empty()) {
    out->swap(pending_);
    return true;
  }
  while (!set_->all_finished()) {
    if (should_stop_()) return false;
    if (const auto message = set_->Next(kSlice)) {
      const bool more = Render(*message, out);
      if (!out->empty() || !more) return more;
    } else if (ping_interval_us_ > 0 && clock_->NowUs() - last_output_us_ >= ping_interval_us_) {
      *out = ":\n\n";
      return true;
    }
  }
  *out = writer_->StreamEnd();
  return false;
}

bool CompletionStream::Render(const GenerationMessage& message, std::string* out) {
  if (const auto* problem = std::get_if<Problem>(&message.event)) {
    *out = writer_->StreamError(ProblemJson(*problem));
    return false;
  }
  writer_->StreamText(message.index, message.event, out);
  return true;
}

}  // namespace polykv
