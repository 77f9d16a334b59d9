#if defined(__x86_64__)

#define POLYKV_ISA avx2
#include "attention/compute.h"

namespace polykv::avx2 {

AttentionKernel Kernel() { return {.work_bytes = &WorkBytes, .compute = &Compute}; }

}  // namespace polykv::avx2

#endif
