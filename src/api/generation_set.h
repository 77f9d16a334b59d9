// The generations of one HTTP request, heard together and cancelled together.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "session/request.h"

namespace polykv {

// Used by one thread at a time. Its end, whatever the reason, cancels what has not finished, so
// that the engine frees the cells.
class GenerationSet {
 public:
  // `channel` carries the events of `n` generations, whose indices are [0, n).
  GenerationSet(std::shared_ptr<GenerationChannel> channel, size_t n);
  ~GenerationSet();
  GenerationSet(const GenerationSet&) = delete;
  GenerationSet& operator=(const GenerationSet&) = delete;

  // The next event; nothing after `timeout`. REQUIRES: !all_finished().
  std::optional<GenerationMessage> Next(std::chrono::milliseconds timeout);

  size_t size() const { return size_; }
  bool all_finished() const { return n_open_ == 0; }

 private:
  const std::shared_ptr<GenerationChannel> channel_;
  const size_t size_;
  size_t n_open_;
};

}  // namespace polykv
