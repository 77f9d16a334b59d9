#include "engine/steps/embed.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/floors.h"
#include "engine/steps/admit.h"
#include "engine/steps/pressure.h"

namespace polykv {
namespace {

// What one prompt contributes to a batch.
struct Part {
  Embedding* embedding;
  std::span<const Token> prompt;  // whole
  Sequence* seat;
  int32_t n_tokens;         // of the prompt, from where the seat ends
  int32_t batch_begin = 0;  // where they are in the batch

  int32_t n_left() const { return static_cast<int32_t>(prompt.size()) - seat->n_tokens(); }
  std::span<const Token> tokens() const {
    return prompt.subspan(seat->tokens.size(), static_cast<size_t>(n_tokens));
  }
};

Problem NoFreeCells(int32_t wanted) {
  return {.status = 503,
          .type = "no_free_cells",
          .message = "the input needs " + std::to_string(wanted) +
                     " cells, more than can be had beside what is pinned; release a pool",
          .retry_after_s = 5};
}

// Why the model cannot take a prompt of that length, with llama-server's words and statuses.
std::optional<Problem> LengthRefusal(const EngineState& state, int32_t n_prompt) {
  const ModelInfo& info = state.backend->info();
  const int32_t n_ctx = state.config.n_ctx_plain;
  if (info.embeds_in_parts) {
    if (n_prompt >= n_ctx) return ExceedsContext(n_prompt, n_ctx);
    return std::nullopt;
  }
  const std::string input = "input (" + std::to_string(n_prompt) + " tokens) is ";
  if (n_prompt > info.n_ubatch) {
    return Problem{.status = 500,
                   .type = "server_error",
                   .message = input +
                              "too large to process. increase the physical batch size (current "
                              "batch size: " +
                              std::to_string(info.n_ubatch) + ")"};
  }
  if (n_prompt > n_ctx) {
    Problem problem = ExceedsContext(n_prompt, n_ctx);
    problem.message =
        input + "larger than the max context size (" + std::to_string(n_ctx) + " tokens). skipping";
    return problem;
  }
  return std::nullopt;
}

std::optional<Problem> Refusal(const EngineState& state, const SubmitEmbedding& command) {
  if (auto refused = RefuseNewWork(state)) return refused;
  for (const std::vector<Token>& prompt : command.prompts) {
    if (auto refused = LengthRefusal(state, static_cast<int32_t>(prompt.size()))) return refused;
  }
  return std::nullopt;
}

// Prompt tokens for the next batch; 0: the streams that decode leave no room for any.
int32_t BatchBudget(const EngineState& state) {
  const ModelInfo& info = state.backend->info();
  if (state.running.empty()) return info.n_ubatch;
  const int32_t most = std::min(info.n_ubatch, state.config.prefill_chunk);
  const std::optional<StepRoom> room = RoomBetween(state, state.embed_dues);
  if (!room) return most;
  const Embedding& next = state.embeddings.front();
  const Pos begin = state.embed_seats.front().n_tokens();
  const auto n_left =
      static_cast<int32_t>(next.command.prompts[next.vectors.size()].size()) - begin;
  const PrefillJob job{.n_left = std::max(n_left, most), .begin = begin};
  const int32_t chunk = ChunkWithin(*room, {&job, 1}, most);
  if (info.embeds_in_parts || chunk >= n_left) return chunk;
  StepShape whole;
  whole.AddPrefill(n_left, begin);
  return state.step_cost.AtMost(whole) <= static_cast<double>(room->owed) ? n_left : 0;
}

// What the head of the queue puts into the next batch.
std::vector<Part> PlanParts(EngineState& state) {
  const ModelInfo& info = state.backend->info();
  int32_t budget = BatchBudget(state);
  if (budget == 0) return {};
  int32_t cells =
      state.cache.free() + ReclaimableCells(state, nullptr, nullptr) - StartedCells(state);
  const size_t n_seats = info.unified ? state.embed_seats.size() : 1;
  std::vector<Part> parts;
  for (Embedding& embedding : state.embeddings) {
    const std::vector<std::vector<Token>>& prompts = embedding.command.prompts;
    for (size_t i = embedding.vectors.size(); i < prompts.size(); ++i) {
      if (parts.size() == n_seats) return parts;
      Part part{&embedding, prompts[i], &state.embed_seats[parts.size()], 0};
      part.n_tokens = info.embeds_in_parts ? std::min(part.n_left(), budget) : part.n_left();
      if (part.n_tokens == 0 || (part.n_tokens > budget && !parts.empty())) return parts;
      if (info.generates) cells -= part.n_left();
      if (cells < 0) return parts;
      budget -= part.n_tokens;
      parts.push_back(part);
    }
  }
  return parts;
}

void BuildBatch(std::span<Part> parts, StepBatch& batch) {
  batch.clear();
  for (Part& part : parts) {
    part.batch_begin = static_cast<int32_t>(batch.size());
    Pos pos = part.seat->n_tokens();
    for (const Token token : part.tokens()) {
      batch.push_back({token, pos++, part.seat->id, /*output=*/true});
    }
  }
}

// The prompt is computed: its vectors are kept, its cells are not.
void FinishPrompt(EngineState& state, const Part& part) {
  const int32_t last = part.batch_begin + part.n_tokens - 1;
  PromptVectors vectors;
  for (int32_t i = state.backend->info().pooled ? last : part.batch_begin; i <= last; ++i) {
    vectors.push_back(state.backend->Vector(part.seat->id, i));
  }
  state.cache.Clear(*part.seat);
  Embedding& embedding = *part.embedding;
  if (std::any_of(vectors.begin(), vectors.end(), [](const auto& v) { return v.empty(); })) {
    return Fail(state, embedding,
                {.status = 500, .type = "server_error", .message = "the model gave no embedding"});
  }
  embedding.vectors.push_back(std::move(vectors));
  if (embedding.vectors.size() < embedding.command.prompts.size()) return;
  embedding.ended = true;
  state.changed = true;
  state.Answer(embedding.command.channel, std::move(embedding.vectors));
}

void Commit(EngineState& state, std::span<const Part> parts, TimeUs began) {
  Counters& counters = state.counters;
  for (const Part& part : parts) {
    counters.n_prompt_processed += static_cast<uint64_t>(part.n_tokens);
    state.cache.Append(*part.seat, part.tokens());
    if (part.embedding->ended) {
      state.cache.Clear(*part.seat);
    } else if (part.n_left() == 0) {
      FinishPrompt(state, part);
    }
  }
  counters.prompt_us += state.now() - began;
  ++counters.n_prefill_steps;
  ++counters.n_decode;
  counters.n_busy_slots += state.running.size();
}

// A batch failed. Alone, each prompt shows whether the fault is its own; up to one that finds no
// room, since prompts are done in order.
bool Execute(EngineState& state, std::span<Part> parts);

void Isolate(EngineState& state, std::span<Part> parts) {
  if (parts.size() == 1) {
    return Fail(state, *parts[0].embedding,
                {.status = 500, .type = "server_error", .message = "compute error"});
  }
  for (Part& part : parts) {
    if (!part.embedding->ended && !Execute(state, {&part, 1})) return;
  }
}

// False if the model found no room although the count says that there is some.
bool Execute(EngineState& state, std::span<Part> parts) {
  BuildBatch(parts, state.batch);
  StepShape shape;
  for (const Part& part : parts) shape.AddPrefill(part.n_tokens, part.seat->n_tokens());
  const TimeUs began = state.now();
  const DecodeStatus status = state.backend->Embed(state.batch);
  if (status == DecodeStatus::kOk) {
    Commit(state, parts, began);
    NoteEmbedStep(state, shape, state.now() - began);
  }
  if (status == DecodeStatus::kFailed) Isolate(state, parts);
  if (status == DecodeStatus::kNoRoom && !ReclaimOnce(state, nullptr, nullptr)) {
    Fail(state, *parts[0].embedding, NoFreeCells(parts[0].n_left()));
  }
  return status != DecodeStatus::kNoRoom;
}

// Frees cells for the batch that nobody is using.
void MakeIdleRoom(EngineState& state, std::span<const Part> parts) {
  if (!state.backend->info().generates) return;
  int32_t wanted = 0;
  for (const Part& part : parts) wanted += part.n_tokens;
  while (state.cache.free() < wanted && ReclaimOnce(state, nullptr, nullptr)) {
  }
}

}  // namespace

void Enqueue(EngineState& state, SubmitEmbedding command) {
  POLYKV_CHECK(state.config.max_embeds > 0);
  state.changed = true;
  if (auto problem = Refusal(state, command)) {
    state.Answer(command.channel, std::move(*problem));
    return;
  }
  state.embeddings.emplace_back().command = std::move(command);
}

bool RunEmbedStep(EngineState& state) {
  if (state.embeddings.empty()) return false;
  std::vector<Part> parts = PlanParts(state);
  if (!parts.empty()) {
    MakeIdleRoom(state, parts);
    Execute(state, parts);
  } else if (state.running.empty() && state.materializing.empty()) {
    Fail(state, state.embeddings.front(), NoFreeCells(NextEmbeddingCells(state)));
  }
  SweepEmbeddings(state);
  // The last prompt may be done in part only; the next batch begins with it.
  if (parts.size() > 1) std::swap(*parts.back().seat, state.embed_seats.front());
  return !parts.empty();
}

int32_t NextEmbeddingCells(const EngineState& state) {
  if (state.embeddings.empty() || !state.backend->info().generates) return 0;
  const Embedding& next = state.embeddings.front();
  return static_cast<int32_t>(next.command.prompts[next.vectors.size()].size()) -
         state.embed_seats.front().n_tokens();
}

void Fail(EngineState& state, Embedding& embedding, Problem problem) {
  state.Answer(embedding.command.channel, std::move(problem));
  embedding.ended = true;
  state.changed = true;
}

void Cancel(EngineState& state, Embedding& embedding) {
  ++state.counters.cancelled;
  embedding.ended = true;
  state.changed = true;
}

void SweepEmbeddings(EngineState& state) {
  if (state.embeddings.empty()) return;
  if (state.embeddings.front().ended) state.cache.Clear(state.embed_seats.front());
  state.embeddings.remove_if([](const Embedding& embedding) { return embedding.ended; });
}

}  // namespace polykv
