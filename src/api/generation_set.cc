#include "api/generation_set.h"

#include <utility>

#include "base/check.h"

namespace polykv {

GenerationSet::GenerationSet(std::shared_ptr<GenerationChannel> channel, size_t n)
    : channel_(std::move(channel)), size_(n), n_open_(n) {}

GenerationSet::~GenerationSet() {
  if (n_open_ > 0) channel_->Cancel();
}

std::optional<GenerationMessage> GenerationSet::Next(std::chrono::milliseconds timeout) {
  POLYKV_CHECK(n_open_ > 0);
  std::optional<GenerationMessage> message = channel_->Next(timeout);
  if (message.has_value() && (std::holds_alternative<Finished>(message->event) ||
                              std::holds_alternative<Problem>(message->event))) {
    --n_open_;
  }
  return message;
}

}  // namespace polykv
