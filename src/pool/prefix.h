// Matching token prefixes. A match is a value; it is always settled by comparing tokens, the hashes
// only name a prefix.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"

namespace polykv {

// Number of leading tokens that are equal.
int32_t LongestCommonPrefix(std::span<const Token> a, std::span<const Token> b);

// result[i] names tokens[0, i]: xxhash64 of tokens[i] seeded with result[i - 1] (seed 0 at i = 0).
std::vector<uint64_t> CumulativeHashes(std::span<const Token> tokens);

// What a request can take over instead of computing it.
struct PrefixMatch {
  int32_t n_own =
      0;  // leading tokens of the prompt that the sequence's own cells hold; kept if > 0
  int32_t n_pool = 0;    // leading tokens to share from the pool into an emptied sequence
  int32_t n_common = 0;  // true match with the pool, not limited by anything
  int32_t n_reused() const { return n_own > 0 ? n_own : n_pool; }
};

// Own cells win when they reach at least as far as the pool (a continuation). One token of the
// prompt is always left to compute, since its logits are needed. `n_pool_max`: an explicit limit on
// the share.
PrefixMatch MatchPrefix(std::span<const Token> prompt, std::span<const Token> own,
                        std::span<const Token> pool, std::optional<int32_t> n_pool_max);

}  // namespace polykv
