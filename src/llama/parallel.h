// A loop on the threads that ggml computes with.
#pragma once

#include <cstddef>

namespace polykv {

// Calls body(i) for every i in [0, n), each once, on up to `n_threads` threads, which take the next
// one as they become free, in ascending order. Returns when all are done. `body` throws nothing.
//
// With OpenMP they are the threads of ggml's own team, which would otherwise idle; threads besides
// them would fight with them for the cores. Without OpenMP the caller does it all.
template <typename Body>
void ForEachInParallel(size_t n, [[maybe_unused]] int n_threads, const Body& body) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads) if (n_threads > 1)
#endif
  for (size_t i = 0; i < n; ++i) body(i);
}

}  // namespace polykv
