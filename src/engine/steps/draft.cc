#include "engine/steps/draft.h"

#include <algorithm>
#include <vector>

#include "engine/steps/share.h"

namespace polykv {
namespace {

bool Decodes(const EngineState& state, const Generation& generation) {
  return generation.phase == Generation::Phase::kDecode && HasCells(state, generation.sequence->id);
}

// How many drafted tokens the generation can use: its last token and the context's end need a place
// of their own, as in llama-server.
int32_t UsefulDraft(const Generation& generation) {
  const int32_t by_context = generation.n_ctx - generation.sequence->n_tokens() - 2;
  if (generation.n_predict < 0) return by_context;
  return std::min(by_context, generation.n_predict - generation.timings.n_generated - 1);
}

// Drafted tokens for each decoding stream that are computed together with all that must be, and
// that have cells.
int32_t DraftRoom(const EngineState& state) {
  int32_t n_streams = 0;
  int32_t n_tokens = 0;
  for (const auto& generation : state.running) {
    if (!Decodes(state, *generation)) continue;
    ++n_streams;
    n_tokens += static_cast<int32_t>(generation->next.size());
  }
  if (n_streams == 0) return 0;
  const int32_t room = std::min(state.cache.free(), state.backend->info().n_ubatch) - n_tokens;
  return std::min(room / n_streams, state.backend->drafter()->n_max());
}

void CountDraft(Counters& counters, int32_t n_draft, int32_t n_accepted, int32_t n_max) {
  ++counters.n_drafts;
  counters.n_draft += static_cast<uint64_t>(n_draft);
  counters.n_draft_accepted += static_cast<uint64_t>(n_accepted);
  counters.n_accepted_at.resize(static_cast<size_t>(n_max));
  for (int32_t i = 0; i < n_accepted; ++i) ++counters.n_accepted_at[static_cast<size_t>(i)];
}

}  // namespace

void DraftAhead(EngineState& state) {
  Drafter* const drafter = state.backend->drafter();
  if (drafter == nullptr) return;
  const int32_t room = DraftRoom(state);
  std::vector<DraftRequest> requests;
  std::vector<Generation*> drafting;  // parallel to requests
  for (const auto& generation : state.running) {
    // One that was not computed in the step it was made for is still good.
    if (!Decodes(state, *generation) || !generation->draft().empty()) continue;
    const int32_t n_max = std::min(room, UsefulDraft(*generation));
    if (n_max <= 0) continue;
    requests.push_back({.seq = generation->sequence->id,
                        .tokens = &generation->sequence->tokens,
                        .last = generation->next.front(),
                        .n_max = n_max,
                        .draft = {}});
    drafting.push_back(generation.get());
  }
  if (requests.empty()) return;
  drafter->Draft(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<Token>& next = drafting[i]->next;
    next.insert(next.end(), requests[i].draft.begin(), requests[i].draft.end());
  }
}

bool DropDrafts(EngineState& state) {
  bool dropped = false;
  for (const auto& generation : state.running) {
    if (generation->draft().empty()) continue;
    generation->next.resize(1);
    dropped = true;
  }
  return dropped;
}

bool SettleDraft(EngineState& state, Generation& generation, int32_t n_accepted) {
  const auto n_draft = static_cast<int32_t>(generation.draft().size());
  if (n_draft == 0) return true;
  Drafter& drafter = *state.backend->drafter();
  drafter.Accept(generation.sequence->id, n_accepted);
  generation.timings.n_draft += n_draft;
  generation.timings.n_draft_accepted += n_accepted;
  CountDraft(state.counters, n_draft, n_accepted, drafter.n_max());
  const Pos kept = generation.sequence->n_tokens() - (n_draft - n_accepted);
  return state.cache.DropDraft(*generation.sequence, kept);
}

}  // namespace polykv
