// Types that every layer speaks.
#pragma once

#include <cstdint>
#include <string>

namespace polykv {

using Token = int32_t;          // index into the model's vocabulary, [0, n_vocab)
using Pos = int32_t;            // position in a sequence, from 0; ranges are half-open [p0, p1)
using SeqId = int32_t;          // llama_seq_id, [0, n_seq_max)
using PoolId = int64_t;         // never reused in a process
using TimeUs = int64_t;         // microseconds on a monotonic clock
using SessionId = std::string;  // 1 to 256 bytes of UTF-8, compared by equality only
// Whose something is: with --polykv-isolate-keys the place of the API key in the list of keys, from
// 1; the admin key comes behind them.
using TenantId = int32_t;

inline constexpr SeqId kNoSeq = -1;
inline constexpr PoolId kNoPool = -1;
inline constexpr TenantId kEverybody = 0;  // the only tenant without --polykv-isolate-keys
inline constexpr Pos kToEnd = -1;          // as p1: up to the last position

}  // namespace polykv
