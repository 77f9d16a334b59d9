#include "engine/steps/decode.h"

#include <algorithm>
#include <exception>
#include <span>

#include "base/check.h"
#include "engine/floors.h"
#include "engine/steps/admit.h"
#include "engine/steps/checkpoint.h"
#include "engine/steps/draft.h"
#include "engine/steps/gate.h"
#include "engine/steps/materialize.h"
#include "engine/steps/move_down.h"
#include "engine/steps/plan_step.h"
#include "engine/steps/pressure.h"
#include "engine/steps/retire.h"
#include "engine/steps/share.h"
#include "engine/steps/shift.h"

namespace polykv {
namespace {

using Phase = Generation::Phase;

// A stream and the batch index whose logits give its next token.
struct Output {
  Generation* generation;
  int32_t index;
};
using Outputs = std::vector<Output>;

// Where the entry's next tokens come from.
std::span<const Token> NextTokens(const BatchEntry& entry) {
  const auto n = static_cast<size_t>(entry.n_tokens);
  if (entry.pool != nullptr) {
    const PoolNode& node = *entry.pool->node;
    return std::span(node.prefix.tokens).subspan(static_cast<size_t>(node.n_materialized), n);
  }
  const Generation& generation = *entry.generation;
  if (entry.decodes()) return generation.next;
  return std::span<const Token>(generation.request->prompt)
      .subspan(generation.sequence->tokens.size(), n);
}

// The entry's last tokens that are sampled at: all of a decoding stream's, since a draft shows at
// each whether it goes on as guessed; of a prompt only its last one.
int32_t CountOutputs(const BatchEntry& entry) {
  if (entry.decodes()) return entry.n_tokens;
  const bool ends_prompt =
      entry.generation != nullptr && entry.generation->n_prompt_left() == entry.n_tokens;
  return ends_prompt ? 1 : 0;
}

void BuildBatch(std::span<BatchEntry> entries, StepBatch& batch) {
  batch.clear();
  for (BatchEntry& entry : entries) {
    Pos pos = entry.begin();
    const int32_t n_outputs = CountOutputs(entry);
    int32_t n_left = entry.n_tokens;
    for (const Token token : NextTokens(entry)) {
      batch.push_back({token, pos++, entry.seq(), /*output=*/n_left-- <= n_outputs});
    }
    entry.output = n_outputs > 0 ? static_cast<int32_t>(batch.size()) - n_outputs : -1;
  }
}

// The text of one sampled token reaches the client; the stream goes on or ends. `n_context`: tokens
// of the sequence that the sample follows.
void Deliver(EngineState& state, Generation& generation, SampledToken sampled, int32_t n_context,
             TimeUs now) {
  const GenerationRequest& request = *generation.request;
  Timings& timings = generation.timings;
  ++timings.n_generated;
  if (timings.n_generated == 1) {
    timings.t_first = now;
    timings.t_prompt_last = now;
    if (generation.session != nullptr) generation.session->ttft_us = now - timings.t_queued;
  } else {
    ++state.counters.n_generated_steps;
    state.counters.generate_us += now - timings.t_last;
  }
  timings.t_last = now;
  ++state.counters.n_generated;
  generation.phase = Phase::kDecode;
  generation.next.assign(1, sampled.token);

  const bool special = request.special || request.preserved_tokens.contains(sampled.token);
  const std::string text = state.backend->TokenText(sampled.token, special);
  TextAssembler::Outcome outcome = generation.text.Accept(
      text, {.end_of_generation = state.backend->IsEndOfGeneration(sampled.token),
             .context_full = ContextFull(generation, n_context) && !MayShift(state, generation),
             .n_generated = timings.n_generated,
             .predict_ms = (now - timings.t_first) / 1'000});
  if (request.keep_tokens) {
    generation.tokens.push_back(sampled);
    generation.token_texts.push_back(outcome.to_send);
    generation.token_delivered.push_back(outcome.delivered);
  }
  if (request.stream && outcome.delivered) {
    state.Emit(generation,
               Piece{std::move(outcome.to_send), std::move(sampled), timings, outcome.ended});
  }
  if (outcome.ended) Finish(state, generation, generation.text.truncated(), "");
}

// How long the client has waited for these tokens.
void MeasureWait(EngineState& state, const Generation& generation, int32_t n_tokens, TimeUs now) {
  const auto pool =
      generation.session != nullptr ? state.pools.FindOrNull(generation.session->pool_id) : nullptr;
  LatencyMeters& latency = pool != nullptr ? pool->latency : state.counters.latency;
  if (generation.timings.n_generated == 0) {
    latency.first_token.Add(now - generation.timings.t_queued);
  } else {
    latency.inter_token.Add(generation.rate.SinceLast(now) / n_tokens, n_tokens);
  }
}

// What the model says to the generation's draft, or to its one token.
void Verify(EngineState& state, Generation& generation, std::vector<SampledToken> sampled,
            TimeUs now) {
  const auto n_sampled = static_cast<int32_t>(sampled.size());
  if (!SettleDraft(state, generation, n_sampled - 1)) {
    return Fail(state, generation,
                {.status = 500,
                 .type = "server_error",
                 .message = "the model's memory could not take back a draft"});
  }
  const bool first = generation.timings.n_generated == 0;
  state.throughput.AddTokens(n_sampled - (first ? 1 : 0), now);
  MeasureWait(state, generation, n_sampled, now);
  generation.rate.AddTokens(n_sampled, now);
  if (const double floor = FloorOf(state, generation); floor > 0 && !first) {
    generation.pace.AddTokens(n_sampled, now - generation.timings.t_last, floor);
  }
  if (generation.session != nullptr) CountTokens(state, *generation.session, n_sampled);
  int32_t n_context = generation.sequence->n_tokens() - n_sampled;
  for (SampledToken& token : sampled) {
    Deliver(state, generation, std::move(token), ++n_context, now);
    if (generation.phase == Phase::kEnded) return;
  }
}

void Sample(EngineState& state, const Outputs& outputs, TimeUs now) {
  if (outputs.empty()) return;
  std::vector<SampleJob>& jobs = state.sample_jobs;
  jobs.clear();
  for (const auto& [generation, index] : outputs) {
    if (generation->timings.n_generated == 0 && state.backend->drafter() != nullptr) {
      const Sequence& sequence = *generation->sequence;
      state.cache.shares().Settled(sequence.id).drafter()->Begin(sequence.id, sequence.tokens);
    }
    jobs.push_back({.sampler = generation->request->sampler.get(),
                    .output_index = index,
                    .draft = generation->draft()});
  }
  state.backend->Sample(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    Generation& generation = *outputs[i].generation;
    if (jobs[i].fault.empty()) {
      Verify(state, generation, std::move(jobs[i].sampled), now);
    } else {
      Fail(state, generation,
           {.status = 500, .type = "server_error", .message = "sampling failed: " + jobs[i].fault});
    }
  }
}

// The choices that waited for the lead's prompt go on from it, with the same logits first.
void StartFollowers(EngineState& state, Generation& lead, int32_t output, Outputs& outputs) {
  for (const auto& follower : state.running) {
    if (follower->lead != lead.task_id || follower->phase != Phase::kFollow) continue;
    state.cache.Clone(*lead.sequence, *follower->sequence);
    follower->timings = lead.timings;
    follower->report = lead.report;
    Announce(state, *follower);
    outputs.push_back({follower.get(), output});
  }
}

// The streams whose next token is sampled from the step's logits.
Outputs CollectOutputs(EngineState& state, std::span<const BatchEntry> entries) {
  Outputs outputs;
  for (const BatchEntry& entry : entries) {
    if (entry.output < 0) continue;
    Generation& generation = *entry.generation;
    outputs.push_back({&generation, entry.output});
    if (generation.phase == Phase::kPrefill && generation.n_choices > 1) {
      StartFollowers(state, generation, entry.output, outputs);
    }
  }
  std::stable_sort(outputs.begin(), outputs.end(), [](const Output& a, const Output& b) {
    return a.generation->slot_id < b.generation->slot_id;  // llama-server's order of events
  });
  return outputs;
}

// The model has computed the entries: cells first, then samples, so that one stream's end does not
// disturb another's cells.
void Commit(EngineState& state, std::span<BatchEntry> entries, TimeUs began) {
  const TimeUs now = state.now();
  int32_t n_prompt = 0;
  for (BatchEntry& entry : entries) {
    if (entry.pool != nullptr) {
      n_prompt += entry.n_tokens;
      AdvancePool(state, *entry.pool, entry.n_tokens);
      continue;
    }
    Generation& generation = *entry.generation;
    const bool prompt = generation.phase == Phase::kPrefill;
    const std::span<const Token> tokens = NextTokens(entry);
    state.cache.Append(*generation.sequence, tokens);
    state.counters.n_tokens_max =
        std::max<uint64_t>(state.counters.n_tokens_max, generation.sequence->tokens.size());
    if (!prompt) continue;
    n_prompt += entry.n_tokens;
    generation.timings.n_prompt_processed += entry.n_tokens;
    generation.timings.t_prompt_last = now;
    if (generation.request->stream && generation.request->return_progress) {
      state.Emit(generation,
                 Progress{generation.n_prompt(), generation.timings.n_prompt_cached,
                          generation.sequence->n_tokens(), now - generation.timings.t_start});
    }
  }
  ++state.counters.n_decode;
  state.counters.n_busy_slots += state.running.size();
  if (n_prompt > 0) {
    state.counters.n_prompt_processed += static_cast<uint64_t>(n_prompt);
    state.counters.prompt_us += now - began;
    ++state.counters.n_prefill_steps;
    constexpr double kAlpha = 0.2;  // of the newest step in the running mean
    const double us = static_cast<double>(now - began) / CountTokens(entries);
    state.prefill_us_per_token += kAlpha * (us - state.prefill_us_per_token);
  }
  Sample(state, CollectOutputs(state, entries), now);
}

// A batch failed. Alone, each stream shows whether the fault is its own; the others lose nothing.
void Execute(EngineState& state, std::span<BatchEntry> entries);

void Isolate(EngineState& state, std::span<BatchEntry> entries) {
  const Problem fault{.status = 500, .type = "server_error", .message = "compute error"};
  if (entries.size() > 1) {
    for (BatchEntry& entry : entries) Execute(state, {&entry, 1});
  } else if (entries[0].pool != nullptr) {
    FailPool(state, entries[0].pool->node, fault);
  } else {
    Fail(state, *entries[0].generation, fault);
  }
}

void Execute(EngineState& state, std::span<BatchEntry> entries) {
  BuildBatch(entries, state.batch);
  const StepShape shape = ShapeOf(entries);
  const StepShape decode = DecodesOf(entries);
  const TimeUs began = state.now();
  switch (state.backend->Decode(state.batch)) {
    case DecodeStatus::kOk:
      Commit(state, entries, began);
      return NoteStep(state, shape, decode, state.now() - began);
    case DecodeStatus::kFailed:
      return Isolate(state, entries);
    case DecodeStatus::kNoRoom:
      state.out_of_room = true;
      return;
  }
}

void UseAdapters(EngineState& state, const AdapterSet& adapters) {
  state.adapter_turn.Took(adapters, WantedAdapters(state));
  state.backend->UseAdapters(adapters);
}

}  // namespace

bool RunModelStep(EngineState& state) {
  bool changed = BeginPools(state);
  GoOnSharing(state);
  ShiftFullContexts(state);
  MoveOneStreamDown(state);
  DraftAhead(state);
  Entries entries = PlanStep(state);
  if (CountTokens(entries) > state.cache.free() && DropDrafts(state)) entries = PlanStep(state);
  while (!entries.empty() && MakeRoom(state, CountTokens(entries))) {
    entries = PlanStep(state);
    changed = true;
  }
  if (entries.empty()) return changed;
  state.out_of_room = false;
  UseAdapters(state, entries.front().adapters());
  Execute(state, entries);
  SweepEnded(state);
  if (state.out_of_room) MakeSomeRoom(state);
  return true;
}

}  // namespace polykv
