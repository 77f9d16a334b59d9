#define POLYKV_ISA portable
#include "attention/compute.h"

namespace polykv::portable {

AttentionKernel Kernel() { return {.work_bytes = &WorkBytes, .compute = &Compute}; }

}  // namespace polykv::portable
