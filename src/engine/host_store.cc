#include "engine/host_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "pool/prefix.h"

namespace polykv {
namespace {

// An entry that has less of itself in common with the prompt stays for others.
constexpr float kMinKept = 0.25F;

int64_t BytesOf(std::span<const Token> tokens, std::span<const Checkpoint> checkpoints,
                size_t state_size) {
  size_t n_bytes = tokens.size_bytes() + state_size;
  for (const Checkpoint& checkpoint : checkpoints) n_bytes += checkpoint.state->size();
  return static_cast<int64_t>(n_bytes);
}

// How much of a sequence a prompt can reuse.
struct Overlap {
  float kept;     // share of the sequence
  float similar;  // share of the prompt
};

Overlap Compare(std::span<const Token> prompt, std::span<const Token> tokens) {
  const auto n_common = static_cast<float>(LongestCommonPrefix(prompt, tokens));
  const float kept = tokens.empty() ? -1.0F : n_common / static_cast<float>(tokens.size());
  return {kept, n_common / static_cast<float>(prompt.size())};
}

bool BeginsWith(std::span<const Token> tokens, std::span<const Token> prefix) {
  return static_cast<size_t>(LongestCommonPrefix(tokens, prefix)) == prefix.size();
}

}  // namespace

int64_t SavedSequence::n_bytes() const { return BytesOf(tokens, checkpoints, state.size()); }

bool HostStore::Holds(std::span<const Token> tokens, const AdapterSet& adapters) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const SavedSequence& entry) {
    return entry.adapters == adapters && BeginsWith(entry.tokens, tokens);
  });
}

SavedSequence* HostStore::AddOrNull(std::span<const Token> tokens, const AdapterSet& adapters,
                                    std::span<const Checkpoint> checkpoints, size_t state_size) {
  const int64_t n_bytes = BytesOf(tokens, checkpoints, state_size);
  const bool limited = max_bytes_ >= 0;
  if (limited && n_bytes > max_bytes_) return nullptr;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool replaced = it->adapters == adapters && BeginsWith(tokens, it->tokens);
    it = replaced ? Erase(it) : std::next(it);
  }
  while (limited && n_bytes_ + n_bytes > max_bytes_) Erase(entries_.begin());
  HostBytes state(state_size);
  if (state.size() != state_size) return nullptr;
  n_bytes_ += n_bytes;
  return &entries_.emplace_back(
      SavedSequence{.tokens = {tokens.begin(), tokens.end()},
                    .adapters = adapters,
                    .checkpoints = {checkpoints.begin(), checkpoints.end()},
                    .state = std::move(state)});
}

void HostStore::DropBeyondMaxTokens() {
  if (max_tokens_ <= 0) return;
  int64_t n_tokens = CountTokens();
  int64_t limit = max_tokens_;
  if (max_bytes_ > 0 && n_bytes_ > 0) {
    limit = std::max(
        limit, static_cast<int64_t>(static_cast<double>(max_bytes_) /
                                    static_cast<double>(n_bytes_) * static_cast<double>(n_tokens)));
  }
  while (n_tokens > limit) {
    n_tokens -= static_cast<int64_t>(entries_.front().tokens.size());
    Erase(entries_.begin());
  }
}

void HostStore::CheckIntegrity() const {
  int64_t n_bytes = 0;
  for (const SavedSequence& entry : entries_) n_bytes += entry.n_bytes();
  POLYKV_CHECK(n_bytes == n_bytes_ && (max_bytes_ < 0 || n_bytes <= max_bytes_));
}

const SavedSequence* HostStore::FindBetterOrNull(std::span<const Token> prompt,
                                                 const AdapterSet& adapters,
                                                 std::span<const Token> own) const {
  const SavedSequence* best = nullptr;
  Overlap most = Compare(prompt, own);
  for (const SavedSequence& entry : entries_) {
    const Overlap overlap = Compare(prompt, entry.tokens);
    if (entry.adapters != adapters || overlap.kept < kMinKept) continue;
    if (overlap.kept > most.kept && overlap.similar > most.similar) {
      most = overlap;
      best = &entry;
    }
  }
  return best;
}

SavedSequence HostStore::Take(const SavedSequence* entry) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [entry](const SavedSequence& e) { return &e == entry; });
  POLYKV_CHECK(it != entries_.end());
  n_bytes_ -= it->n_bytes();
  SavedSequence taken = std::move(*it);
  entries_.erase(it);
  return taken;
}

HostStore::Entries::iterator HostStore::Erase(Entries::iterator it) {
  n_bytes_ -= it->n_bytes();
  return entries_.erase(it);
}

int64_t HostStore::CountTokens() const {
  int64_t n_tokens = 0;
  for (const SavedSequence& entry : entries_) {
    n_tokens += static_cast<int64_t>(entry.tokens.size());
  }
  return n_tokens;
}

}  // namespace polykv
