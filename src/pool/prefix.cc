#include "pool/prefix.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace polykv {

int32_t LongestCommonPrefix(std::span<const Token> a, std::span<const Token> b) {
  const size_t n = std::min(a.size(), b.size());
  const auto diff = std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin());
  return static_cast<int32_t>(diff.first - a.begin());
}

std::vector<uint64_t> CumulativeHashes(std::span<const Token> tokens) {
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size());
  uint64_t hash = 0;
  for (const Token token : tokens) {
    hash = XXH64(&token, sizeof(token), hash);
    hashes.push_back(hash);
  }
  return hashes;
}

PrefixMatch MatchPrefix(std::span<const Token> prompt, std::span<const Token> own,
                        std::span<const Token> pool, std::optional<int32_t> n_pool_max) {
  const int32_t limit = static_cast<int32_t>(prompt.size()) - 1;
  PrefixMatch match;
  match.n_common = LongestCommonPrefix(prompt, pool);
  match.n_pool = std::min({match.n_common, limit, n_pool_max.value_or(limit)});
  const int32_t n_own = std::min(LongestCommonPrefix(prompt, own), limit);
  if (n_own >= match.n_pool) {
    match.n_own = n_own;
    match.n_pool = 0;
  }
  return match;
}

}  // namespace polykv
