// One completion request as the engine sees it, and what it answers with. The wire format is
// api/'s.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/channel.h"
#include "base/result.h"
#include "base/types.h"
#include "kv/adapter_set.h"
#include "kv/model_backend.h"

namespace polykv {

// Pool and session wishes of a request; all empty: a plain request.
struct AttachSpec {
  std::string pool;                               // decimal pool id or name; empty: none
  std::optional<int32_t> shared_pool_slot;        // in place of a pool: what this slot holds
  std::optional<int32_t> shared_prefix_n_tokens;  // explicit P; must not exceed the true match
  bool error_on_miss = false;                     // "on_pool_miss": "error"
  SessionId session_id;                           // empty: none
  bool overcommit = false;                        // past the floor of the pool's policy
  bool session_end = false;                       // forget the session when this request ends

  bool any() const { return !pool.empty() || !session_id.empty() || shared_pool_slot.has_value(); }
};

// Microsecond stamps of one request on the engine's clock; 0: not yet.
struct Timings {
  int32_t n_prompt_cached = 0;
  int32_t n_prompt_processed = 0;
  int32_t n_generated = 0;
  int32_t n_draft = 0;           // drafted tokens that the model has seen
  int32_t n_draft_accepted = 0;  // of them those that it agreed with
  TimeUs t_queued = 0;           // submitted; TTFT counts from here
  TimeUs t_start = 0;            // got a slot
  TimeUs t_prompt_last = 0;      // last prompt token computed
  TimeUs t_first = 0;            // first token sampled
  TimeUs t_last = 0;             // last token sampled
};

// What the `opencoti` block of a response says. Absent from a response that named no pool or
// session.
struct AttachReport {
  PoolId pool_id = kNoPool;  // kNoPool: not attached to one
  SessionId session_id;
  int32_t cache_n = 0;     // tokens not computed for this request
  int32_t ctx_used = 0;    // tokens of the session's context
  int32_t ctx_total = 0;   // what it may hold
  double session_tps = 0;  // experienced tokens per second; 0: not settled
  // no_pool, diverged, evicted, window, recurrent, adapter; empty: no miss
  std::string miss_reason;
  std::optional<int32_t> prefix_break_at;     // first position at which prompt and pool differ
  std::string stop_reason;                    // "kv_exhausted"; empty otherwise
  std::optional<int32_t> sessions_remaining;  // admitted over the floor, with a warning: how many
                                              // more would hold it
};

// Events of one generation in the order in which its channel delivers them: Started?, Progress*,
// Piece*, then one Finished or Problem. A Problem can come at any place and is the last.
struct Started {  // slot and cells are held; an HTTP head can go out
  int32_t slot_id = 0;
  Timings timings;
  AttachReport report;
};
struct Progress {  // only with return_progress
  int32_t n_total = 0;
  int32_t n_cached = 0;
  int32_t n_processed = 0;  // including cached
  TimeUs elapsed_us = 0;
};
// Only with stream; one per token whose text ends at a character. Text may be empty (a possible
// stop word is held back).
struct Piece {
  std::string text;
  SampledToken token;
  Timings timings;
  bool last = false;  // Finished follows
};
enum class StopKind { kNone, kEndOfGeneration, kStopWord, kLimit };
struct Finished {
  int32_t slot_id = 0;
  std::string text;                  // whole; with stream it has been delivered in pieces already
  std::vector<SampledToken> tokens;  // all sampled, with their candidates; only with keep_tokens
  std::vector<std::string> token_texts;  // parallel: the text that was delivered with the token
  std::vector<bool> token_delivered;     // parallel: false if its text travelled with a later token
  StopKind stop = StopKind::kNone;
  std::string stopping_word;
  bool truncated = false;
  bool has_new_line = false;
  int32_t n_tokens_cached = 0;  // tokens of the sequence when it ended
  Timings timings;
  AttachReport report;
};
using GenerationEvent = std::variant<Started, Progress, Piece, Finished, Problem>;

// The generations of one HTTP request share a channel, so that their events keep the engine's
// order.
struct GenerationMessage {
  size_t index = 0;  // GenerationRequest::index
  GenerationEvent event;
};
using GenerationChannel = Channel<GenerationMessage>;

struct GenerationRequest {
  TenantId tenant = kEverybody;
  std::vector<Token> prompt;         // every token in [0, n_vocab); empty only in a plain request
  std::unique_ptr<Sampler> sampler;  // has been told the prompt
  int32_t n_predict = -1;            // -1: until the model or the context ends
  std::vector<std::string> stop_words;
  int32_t n_keep = 0;     // leading tokens that a context shift leaves in place
  int32_t n_discard = 0;  // tokens after them that it drops; 0: half of what is there
  int32_t n_indent = 0;
  int64_t max_predict_ms = -1;
  bool stream = false;
  bool return_progress = false;
  bool keep_tokens = false;  // Finished::tokens wanted (return_tokens or n_probs)
  bool cache_prompt = true;
  bool keeps_state = true;       // takes part in the prompt cache and makes checkpoints
  std::vector<Pos> user_starts;  // of the prompt's user messages, ascending; where it may be cut
  bool special = false;          // render special tokens as text
  std::unordered_set<Token> preserved_tokens;  // special tokens that are rendered all the same
  int32_t id_slot = -1;                        // -1: any
  std::optional<AdapterSet> adapters;          // none: the server's when the request starts
  AttachSpec attach;
  std::string params_json;         // llama-server's `params` object for /slots; opaque here
  std::string request_id;          // X-Request-Id, for the log
  std::string completion_id;       // by which clients name it in commands; choices share it
  bool reasoning_control = false;  // EndReasoning may be asked for
  std::shared_ptr<GenerationChannel> channel = std::make_shared<GenerationChannel>();
  size_t index = 0;  // tells its events from others' in the channel
  // More generations from the same prompt ("n" > 1), each with its own sampler. They
  // start together with this one and take over its cells when the prompt is computed.
  // Their prompt and attach are empty, and they have no choices of their own.
  std::vector<std::unique_ptr<GenerationRequest>> choices;
};

}  // namespace polykv
