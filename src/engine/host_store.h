// Saved sequences in host memory, under one hard cap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "base/types.h"
#include "kv/adapter_set.h"
#include "kv/host_bytes.h"
#include "session/checkpoint.h"

namespace polykv {

// A sequence as it was when it was saved.
struct SavedSequence {
  std::vector<Token> tokens;
  AdapterSet adapters;
  std::vector<Checkpoint> checkpoints;
  HostBytes state;  // StateParts::kAll

  int64_t n_bytes() const;  // all of it
};

// Engine thread only. Holds at most `max_bytes` at any moment: room is made before memory is asked
// for, and what does not fit alone is not saved at all.
// Source of the rules of what replaces what: llama-server's server_prompt_cache.
class HostStore {
 public:
  // `max_bytes` < 0: no limit, 0: nothing is ever saved. `max_tokens` > 0 limits the tokens of all
  // entries; it grows to what `max_bytes` can hold at their mean size.
  HostStore(int64_t max_bytes, int64_t max_tokens)
      : max_bytes_(max_bytes), max_tokens_(max_tokens) {}

  bool on() const { return max_bytes_ != 0; }
  int64_t n_bytes() const { return n_bytes_; }
  size_t n_entries() const { return entries_.size(); }

  // Whether an entry of these adapters begins with `tokens`.
  bool Holds(std::span<const Token> tokens, const AdapterSet& adapters) const;

  // A new entry with room for a state of `state_size` bytes, for the caller to write. Entries that
  // `tokens` begins with go, if the adapters are the same, then the oldest until it fits. Null if
  // it does not fit or the system has no memory for it. Valid until the next call.
  SavedSequence* AddOrNull(std::span<const Token> tokens, const AdapterSet& adapters,
                           std::span<const Checkpoint> checkpoints, size_t state_size);
  void DropBeyondMaxTokens();  // the oldest first

  // Recounts the bytes; aborts on a difference.
  void CheckIntegrity() const;

  // The entry of these adapters from which `prompt` has more to reuse than from `own`, in share of
  // the prompt and in share of the entry; null if there is none. Valid until the next call.
  const SavedSequence* FindBetterOrNull(std::span<const Token> prompt, const AdapterSet& adapters,
                                        std::span<const Token> own) const;
  SavedSequence Take(const SavedSequence* entry);

 private:
  using Entries = std::list<SavedSequence>;  // oldest first

  Entries::iterator Erase(Entries::iterator it);
  int64_t CountTokens() const;

  const int64_t max_bytes_;
  const int64_t max_tokens_;
  Entries entries_;
  int64_t n_bytes_ = 0;
};

}  // namespace polykv
