#include "llama/cell_share.h"

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "llama/memory_internals.h"

namespace polykv {
namespace {

// A state that was taken back lies in another row than the one that libllama shares; saved and
// loaded, it is a row of its own.
void CopyRolledBackTip(llama_context* context, SeqId src, SeqId dst) {
  constexpr llama_state_seq_flags kTip = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
  if (!HasPendingRollback(llama_get_memory(context), src)) return;
  std::vector<uint8_t> tip(llama_state_seq_get_size_ext(context, src, kTip));
  POLYKV_CHECK(llama_state_seq_get_data_ext(context, tip.data(), tip.size(), src, kTip) > 0);
  POLYKV_CHECK(llama_state_seq_set_data_ext(context, tip.data(), tip.size(), dst, kTip) > 0);
}

}  // namespace

bool ShareCells(llama_context* context, bool unified, SeqId src, SeqId dst, Pos p0, Pos p1) {
  llama_memory_t memory = llama_get_memory(context);
  if (!unified) {
    POLYKV_CHECK(p0 == 0 && llama_memory_seq_pos_max(memory, dst) < 0);
    CloneCells(context, unified, src, dst);
    if (p1 == kToEnd || llama_memory_seq_rm(memory, dst, p1, kToEnd)) return true;
    llama_memory_seq_rm(memory, dst, 0, kToEnd);
    return false;
  }
  llama_memory_seq_cp(memory, src, dst, p0, p1);
  CopyRolledBackTip(context, src, dst);
  return true;
}

bool RemoveCells(llama_context* context, SeqId seq, Pos p0, Pos p1) {
  llama_memory_t memory = llama_get_memory(context);
  // libllama would take the state back for all that stand at it.
  const bool cuts = p0 > 0 && p0 <= llama_memory_seq_pos_max(memory, seq);
  if (cuts && SharesTip(memory, seq)) return false;
  return llama_memory_seq_rm(memory, seq, p0, p1);
}

void CloneCells(llama_context* context, bool unified, SeqId src, SeqId dst) {
  llama_memory_seq_cp(llama_get_memory(context), src, dst, -1, -1);
  if (!unified) CompletePendingCopies(context);
  CopyRolledBackTip(context, src, dst);
}

}  // namespace polykv
