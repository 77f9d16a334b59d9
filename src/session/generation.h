#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "meter/pace.h"
#include "meter/rate_window.h"
#include "session/checkpoint_policy.h"
#include "session/request.h"
#include "session/saved_sequence.h"
#include "session/session.h"
#include "session/text_assembler.h"

namespace polykv {

// One request on its way through the engine. Engine thread only.
struct Generation {
  enum class Phase {
    kWaiting,
    kPrefill,
    kFollow,  // holds a slot and waits for the prompt of `lead`
    kDecode,
    kParked,  // holds its slot, but not its cells: `parked`
    kEnded
  };
  static constexpr int64_t kNoLead = -1;

  // `most`: tokens that it may generate whatever the request says; none: as many as that.
  Generation(int64_t task, std::unique_ptr<GenerationRequest> from, TimeUs now,
             std::optional<int32_t> most)
      : task_id(task),
        request(std::move(from)),
        n_predict(request->n_predict < 0 ? most.value_or(-1)
                                         : std::min(request->n_predict, most.value_or(INT32_MAX))),
        text({request->stop_words, request->n_indent, n_predict, request->max_predict_ms}) {
    timings.t_queued = now;
    report.session_id = request->attach.session_id;
  }

  const int64_t task_id;
  std::unique_ptr<GenerationRequest> request;
  const int32_t n_predict;  // -1: no limit
  Phase phase = Phase::kWaiting;
  int32_t slot_id = -1;              // -1: waiting
  std::shared_ptr<Session> session;  // null: a plain request, on its slot's own sequence
  Sequence* sequence = nullptr;      // set with the slot
  int32_t n_ctx = 0;                 // tokens that its context may hold
  Stretch stretch;                   // the part of the prompt under way
  TimeUs held_since = 0;             // by the admission gate; 0: not yet
  std::string_view held_as;          // what it was told then: "hold" or "queue"
  std::string_view admitted_as;      // how the gate lets it start: "admit", "overcommit", …
  Facts admission;                   // … and why
  int32_t n_holes_moved = 0;  // free cells below the highest used one when its own were moved down
  bool announced = false;     // Started has gone out
  bool shifted = false;       // its context was full and lost tokens
  // In kDecode: the sampled token, whose cell is not yet computed, then the draft of what follows.
  std::vector<Token> next;
  std::optional<SavedSequence> parked;               // in kParked: its cells …
  TimeUs parked_at = 0;                              // … since then
  int64_t lead = kNoLead;                            // task whose prompt it takes over
  int32_t n_choices = 1;                             // that its request asked for, itself included
  std::vector<std::unique_ptr<Generation>> choices;  // the others; until they start
  TextAssembler text;
  Timings timings;
  AttachReport report;
  RateWindow rate;
  Pace pace;                         // of a stream with a floor
  std::vector<SampledToken> tokens;  // with keep_tokens
  std::vector<std::string> token_texts;
  std::vector<bool> token_delivered;

  int32_t n_prompt() const { return static_cast<int32_t>(request->prompt.size()); }
  int32_t n_prompt_left() const { return n_prompt() - sequence->n_tokens(); }  // in kPrefill
  // Tokens of its sequence, wherever their cells are.
  int32_t n_tokens() const {
    return parked ? static_cast<int32_t>(parked->tokens.size()) : sequence->n_tokens();
  }
  std::span<const Token> draft() const { return std::span(next).subspan(next.empty() ? 0 : 1); }
  bool cancelled() const { return request->channel->cancelled(); }
};

}  // namespace polykv
