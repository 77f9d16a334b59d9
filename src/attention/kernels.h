// Attention that reads each cell once for all streams that see it.
//
// The usual kernel walks all cells for each token and head. Here the cells are taken in tiles: a
// tile's keys and values are widened to floats once and multiplied with the queries of all tokens,
// which lie side by side in vector registers. Cells that few tokens see (what each stream has said
// itself) are gathered and computed token by token, and tiles that nobody sees cost nothing. All
// arithmetic is in 32-bit floats. The result of a call depends on its content only, never on the
// number of threads or on their timing.
#pragma once

#include <cstddef>
#include <optional>

#include "attention/call.h"

namespace polykv {

enum class InstructionSet { kPortable, kAvx2, kAvx512 };

struct AttentionKernel {
  // Bytes of the memory that the threads of a call share; of any alignment and content.
  size_t (*work_bytes)(const AttentionCall& call, int n_threads);
  // Called by every thread of the team at once, with the same call and the same memory.
  void (*compute)(const AttentionCall& call, const Team& team, std::byte* work);
};

// Whether the kernels compute calls of these shapes; the pointers are not looked at.
bool CoversShape(const AttentionCall& call);

// The fastest that this build has and this processor can run.
InstructionSet BestInstructionSet();

// nullopt if this build does not have it or this processor cannot run it.
std::optional<AttentionKernel> KernelFor(InstructionSet set);

const char* Name(InstructionSet set);

}  // namespace polykv
