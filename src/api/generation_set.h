// The generations of one HTTP request, heard together and cancelled together.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "session/request.h"

namespace polykv {

// Used by one thread at a time. Its end, whatever the reason, cancels what has not finished, so
// that the engine frees the cells.
class GenerationSet {
 public:
  explicit GenerationSet(std::vector<std::shared_ptr<GenerationChannel>> channels);
  ~GenerationSet();
  GenerationSet(const GenerationSet&) = delete;
  GenerationSet& operator=(const GenerationSet&) = delete;

  // The next event and the generation that it belongs to; nothing after about `timeout`.
  // REQUIRES: !all_finished().
  std::optional<std::pair<size_t, GenerationEvent>> Next(std::chrono::milliseconds timeout);

  size_t size() const { return channels_.size(); }
  bool all_finished() const { return n_open_ == 0; }

 private:
  std::optional<std::pair<size_t, GenerationEvent>> Take(size_t index,
                                                         std::chrono::milliseconds timeout);

  std::vector<std::shared_ptr<GenerationChannel>> channels_;  // null: finished
  size_t n_open_;
  size_t next_ = 0;  // whose turn it is, so that no stream starves the others
};

}  // namespace polykv
