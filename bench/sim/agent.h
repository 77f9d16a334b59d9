// A client of the simulated server: a conversation of some turns with pauses between them.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/commands.h"
#include "sim/scenario.h"

namespace polykv {

// A turn as its client saw it.
struct Turn {
  TimeUs asked = 0;
  TimeUs first = 0;  // token
  TimeUs last = 0;   // token
  int32_t n_tokens = 0;
};

// The mean of the rates between two tokens each, the newer the heavier.
class SmoothedRate {
 public:
  void AddToken(TimeUs now);
  void Pause() { last_ = 0; }  // the next token begins anew
  double tps() const { return tps_; }

 private:
  double tps_ = 0;
  TimeUs last_ = 0;  // token; 0: none to count from
};

class Agent {
 public:
  enum class Phase { kPausing, kAsking, kDone };

  // `group` outlives it; `prefix` is what its pool holds.
  Agent(const GroupPlan* group, std::string name, std::vector<Token> prefix, uint64_t seed,
        TimeUs now);

  Phase phase() const { return phase_; }
  TimeUs wakes_at() const { return wakes_at_; }  // in kPausing: when it asks again
  bool started() const { return started_; }      // in kAsking: the request holds a slot
  bool admitted() const { return admitted_; }    // some request of it has started
  TimeUs sent_at() const { return sent_at_; }
  TimeUs done_at() const { return done_at_; }  // in kDone
  int32_t n_refused() const { return n_refused_; }
  const GroupPlan& group() const { return *group_; }
  const std::vector<Turn>& turns() const { return turns_; }
  double smoothed_tps() const { return rate_.tps(); }

  // REQUIRES: kPausing.
  SubmitGeneration Ask(const Range& answer, TimeUs now);
  // Takes what has come. REQUIRES: kAsking.
  void Listen(TimeUs now);

 private:
  int64_t Draw(const Range& range);
  void Add(int64_t n_tokens);
  void EndTurn(TimeUs now);
  void TryLater(const Problem& problem, TimeUs now);

  const GroupPlan* const group_;
  const std::string name_;
  const TimeUs sent_at_;
  std::mt19937_64 random_;
  Phase phase_ = Phase::kPausing;
  TimeUs wakes_at_;
  bool started_ = false;
  bool admitted_ = false;
  bool again_ = false;  // the turn was refused and is tried once more
  TimeUs done_at_ = 0;
  int32_t n_refused_ = 0;
  int64_t n_answer_ = 0;
  std::vector<Token> conversation_;
  std::shared_ptr<GenerationChannel> channel_;
  Turn turn_;
  std::vector<Turn> turns_;
  SmoothedRate rate_;
};

}  // namespace polykv
