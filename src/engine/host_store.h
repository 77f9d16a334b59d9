// Saved sequences in host memory, under one hard cap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <utility>

#include "base/types.h"
#include "kv/cell_origin.h"
#include "session/saved_sequence.h"

namespace polykv {

enum class HostKind {
  kPrompt,   // of llama-server's prompt cache: has no owner, is found by what it begins with
  kSession,  // of an idle session: what only it holds
  kPool,     // of an evicted pool: its own range, without a list of tokens
};

// Engine thread only. Holds at most `max_bytes` and `max_entries` at any moment: room is made
// before memory is asked for, and what does not fit alone is not saved at all. The oldest entry of
// any kind makes room, so an owner may find its entry gone.
class HostStore {
 public:
  struct Limits {
    int64_t max_bytes = 0;  // < 0: no limit, 0: nothing is ever saved
    // Of all prompts; it grows to what `max_bytes` can hold at their mean size. 0: no limit.
    int64_t max_tokens = 0;
    size_t max_entries = 65'536;
  };
  struct Usage {
    int64_t n_bytes = 0;
    int64_t n_entries = 0;
    bool operator==(const Usage&) const = default;
  };

  explicit HostStore(Limits limits) : limits_(limits) {}

  bool on() const { return limits_.max_bytes != 0; }
  // Whether so many bytes fit if all else goes.
  bool CanHold(int64_t n_bytes) const {
    return on() && (limits_.max_bytes < 0 || n_bytes <= limits_.max_bytes);
  }
  int64_t n_bytes() const { return usage_[0].n_bytes + usage_[1].n_bytes + usage_[2].n_bytes; }
  size_t n_entries() const { return entries_.size(); }
  const Usage& UsageOf(HostKind kind) const { return usage_[static_cast<size_t>(kind)]; }

  // A new prompt, `saved` with room for a state of `state_size` bytes, for the caller to write.
  // Prompts that its tokens begin with go, if the origin is the same, then the oldest entries
  // until it fits. Null if it does not fit or the system has no memory for it. Valid until the
  // next call. Source of the rules of what replaces what: llama-server's server_prompt_cache.
  SavedSequence* AddPromptOrNull(SavedSequence saved, size_t state_size);
  // Whether a prompt of this origin begins with `tokens`.
  bool Holds(std::span<const Token> tokens, const CellOrigin& origin) const;
  // The prompt of this origin from which `prompt` has more to reuse than from `own`, in share
  // of the prompt and in share of the entry; null if there is none. Valid until the next call.
  const SavedSequence* FindBetterOrNull(std::span<const Token> prompt, const CellOrigin& origin,
                                        std::span<const Token> own) const;
  SavedSequence Take(const SavedSequence* prompt);
  void DropPromptsBeyondMaxTokens();  // the oldest first

  // The same as AddPromptOrNull for `owner`, a session's number or a pool's id, in place of what
  // the store has of it. REQUIRES: kind is not kPrompt.
  SavedSequence* AddOrNull(HostKind kind, int64_t owner, SavedSequence saved, size_t state_size);
  // The owner's entry, with room for a shared state of so many bytes, for the caller to write; the
  // oldest others go until it fits. Null, and the entry as it was, if it does not fit, there is no
  // entry, or the system has no memory for it. Valid until the next call.
  // REQUIRES: the entry has no shared state.
  SavedSequence* GrowOrNull(HostKind kind, int64_t owner, size_t shared_size);
  // Null: there is none, or no longer. Valid until the next call that is not const.
  const SavedSequence* FindOrNull(HostKind kind, int64_t owner) const;
  void Drop(HostKind kind, int64_t owner);

  // Recounts everything; aborts on a difference, and on an entry whose owner `is_known` denies.
  void CheckIntegrity(const std::function<bool(HostKind kind, int64_t owner)>& is_known) const;

 private:
  using Key = std::pair<HostKind, int64_t>;
  struct Entry {
    Key key;
    SavedSequence saved;
  };
  using Entries = std::list<Entry>;  // oldest first

  SavedSequence* Add(Key key, SavedSequence saved, size_t state_size);
  void MakeRoom(int64_t n_bytes, size_t n_entries);  // the oldest go
  void Count(const Entry& entry, int32_t sign);      // +1: comes, -1: goes
  Entries::iterator Erase(Entries::iterator it);

  const Limits limits_;
  Entries entries_;
  std::map<Key, Entries::iterator> owned_;  // all but the prompts
  std::array<Usage, 3> usage_;              // by kind
};

}  // namespace polykv
