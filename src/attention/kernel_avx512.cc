#if defined(__x86_64__)

#define POLYKV_ISA avx512
#include "attention/compute.h"

namespace polykv::avx512 {

AttentionKernel Kernel() { return {.work_bytes = &WorkBytes, .compute = &Compute}; }

}  // namespace polykv::avx512

#endif
