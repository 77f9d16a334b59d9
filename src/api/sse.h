// A running completion as server-sent events.
#pragma once

#include <memory>
#include <string>

#include "api/generation_set.h"
#include "api/http_server.h"
#include "api/protocol/completion_parser.h"
#include "base/clock.h"

namespace polykv {

// Called by one HTTP worker; holds the generations, and with them their cancelling, until the
// stream has ended or is dropped.
class CompletionStream {
 public:
  // `first`: the event that decided for a stream; no Problem. `clock` outlives the stream.
  CompletionStream(std::unique_ptr<GenerationSet> set, std::unique_ptr<ResponseWriter> writer,
                   int32_t ping_interval_s, std::function<bool()> should_stop, const Clock* clock,
                   const GenerationMessage& first);

  // HttpResponse::next: one event, a ping after `ping_interval_s` of silence, or the end.
  bool Next(std::string* out);

 private:
  bool Advance(std::string* out);
  bool Render(const GenerationMessage& message, std::string* out);  // false: the stream ends

  const std::unique_ptr<GenerationSet> set_;
  const std::unique_ptr<ResponseWriter> writer_;
  const TimeUs ping_interval_us_;  // 0: none
  const std::function<bool()> should_stop_;
  const Clock* const clock_;
  std::string pending_;  // text of the first event
  TimeUs last_output_us_;
};

}  // namespace polykv
