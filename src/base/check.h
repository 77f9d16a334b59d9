// Invariants of our own code. A failed check is a bug in PolyKV: it prints where and aborts, in
// every build. Never for anything that a client sent: that is a Result (base/result.h).
#pragma once

#include <cstdio>
#include <cstdlib>

#define POLYKV_CHECK(condition)                                                              \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
