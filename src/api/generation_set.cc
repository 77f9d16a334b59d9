#include "api/generation_set.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {
namespace {

// Several channels have no common condition: the wait on one is cut so short that the others do not
// show.
constexpr std::chrono::milliseconds kTurn{2};

}  // namespace

GenerationSet::GenerationSet(std::vector<std::shared_ptr<GenerationChannel>> channels)
    : channels_(std::move(channels)), n_open_(channels_.size()) {}

GenerationSet::~GenerationSet() {
  for (const auto& channel : channels_) {
    if (channel != nullptr) channel->Cancel();
  }
}

std::optional<std::pair<size_t, GenerationEvent>> GenerationSet::Next(
    std::chrono::milliseconds timeout) {
  POLYKV_CHECK(n_open_ > 0);
  while (true) {
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (auto event = Take((next_ + i) % channels_.size(), std::chrono::milliseconds(0)))
        return event;
    }
    if (timeout <= std::chrono::milliseconds(0)) return std::nullopt;
    const std::chrono::milliseconds turn = n_open_ == 1 ? timeout : std::min(timeout, kTurn);
    while (channels_[next_] == nullptr) next_ = (next_ + 1) % channels_.size();
    if (auto event = Take(next_, turn)) return event;
    timeout -= turn;
  }
}

std::optional<std::pair<size_t, GenerationEvent>> GenerationSet::Take(
    size_t index, std::chrono::milliseconds timeout) {
  if (channels_[index] == nullptr) return std::nullopt;
  std::optional<GenerationEvent> event = channels_[index]->Next(timeout);
  if (!event.has_value()) return std::nullopt;
  next_ = (index + 1) % channels_.size();
  if (std::holds_alternative<Finished>(*event) || std::holds_alternative<Problem>(*event)) {
    channels_[index].reset();
    --n_open_;
  }
  return std::make_pair(index, *std::move(event));
}

}  // namespace polykv
