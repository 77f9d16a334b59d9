#include "attention/kernels.h"

#include "attention/limits.h"

namespace polykv {

namespace portable {
AttentionKernel Kernel();
}
#if defined(__x86_64__)
namespace avx2 {
AttentionKernel Kernel();
}
namespace avx512 {
AttentionKernel Kernel();
}
#endif

namespace {

bool IsHeadSize(int64_t size) {
  return size > 0 && size <= kMaxHeadSize && size % kHeadSizeStep == 0;
}

bool CanRun(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
  if (set == InstructionSet::kAvx512) {
    return CanRun(InstructionSet::kAvx2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
  }
#endif
  return set == InstructionSet::kPortable;
}

}  // namespace

bool CoversShape(const AttentionCall& call) {
  return call.n_tokens > 0 && call.n_cells > 0 && call.n_kv_heads > 0 &&
         call.n_heads % call.n_kv_heads == 0 && call.group() <= kMaxGroup &&
         IsHeadSize(call.key_size) && IsHeadSize(call.value_size);
}

InstructionSet BestInstructionSet() {
  for (const InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
    if (CanRun(set)) return set;
  }
  return InstructionSet::kPortable;
}

std::optional<AttentionKernel> KernelFor(InstructionSet set) {
  if (!CanRun(set)) return std::nullopt;
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return avx512::Kernel();
  if (set == InstructionSet::kAvx2) return avx2::Kernel();
#endif
  return portable::Kernel();
}

const char* Name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kPortable:
      break;
  }
  return "portable";
}

}  // namespace polykv
