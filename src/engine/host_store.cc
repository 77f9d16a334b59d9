#include "engine/host_store.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "pool/prefix.h"

namespace polykv {
namespace {

// A prompt that has less of itself in common with a new one stays for others.
constexpr float kMinKept = 0.25F;

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

SavedSequence* HostStore::AddPromptOrNull(SavedSequence saved, size_t state_size) {
  if (!CanHold(saved.n_bytes() + static_cast<int64_t>(state_size))) return nullptr;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const SavedSequence& other = it->saved;
    const bool replaced = it->key.first == HostKind::kPrompt && other.origin == saved.origin &&
                          BeginsWith(saved.tokens, other.tokens);
    it = replaced ? Erase(it) : std::next(it);
  }
  return Add({HostKind::kPrompt, 0}, std::move(saved), state_size);
}

bool HostStore::Holds(std::span<const Token> tokens, const CellOrigin& origin) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.key.first == HostKind::kPrompt && entry.saved.origin == origin &&
           BeginsWith(entry.saved.tokens, tokens);
  });
}

const SavedSequence* HostStore::FindBetterOrNull(std::span<const Token> prompt,
                                                 const CellOrigin& origin,
                                                 std::span<const Token> own) const {
  const SavedSequence* best = nullptr;
  Overlap most = Compare(prompt, own);
  for (const auto& [key, saved] : entries_) {
    if (key.first != HostKind::kPrompt || saved.origin != origin) continue;
    const Overlap overlap = Compare(prompt, saved.tokens);
    if (overlap.kept < kMinKept) continue;
    if (overlap.kept > most.kept && overlap.similar > most.similar) {
      most = overlap;
      best = &saved;
    }
  }
  return best;
}

SavedSequence HostStore::Take(const SavedSequence* prompt) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [prompt](const Entry& entry) { return &entry.saved == prompt; });
  POLYKV_CHECK(it != entries_.end() && it->key.first == HostKind::kPrompt);
  Count(*it, -1);
  SavedSequence taken = std::move(it->saved);
  entries_.erase(it);
  return taken;
}

void HostStore::DropPromptsBeyondMaxTokens() {
  if (limits_.max_tokens <= 0) return;
  int64_t n_tokens = 0;
  int64_t n_bytes = 0;
  for (const auto& [key, saved] : entries_) {
    if (key.first != HostKind::kPrompt) continue;
    n_tokens += static_cast<int64_t>(saved.tokens.size());
    n_bytes += saved.n_bytes();
  }
  int64_t limit = limits_.max_tokens;
  if (limits_.max_bytes > 0 && n_bytes > 0) {
    limit = std::max(
        limit, static_cast<int64_t>(static_cast<double>(limits_.max_bytes) /
                                    static_cast<double>(n_bytes) * static_cast<double>(n_tokens)));
  }
  for (auto it = entries_.begin(); n_tokens > limit;) {
    if (it->key.first != HostKind::kPrompt) {
      ++it;
      continue;
    }
    n_tokens -= static_cast<int64_t>(it->saved.tokens.size());
    it = Erase(it);
  }
}

SavedSequence* HostStore::AddOrNull(HostKind kind, int64_t owner, SavedSequence saved,
                                    size_t state_size) {
  POLYKV_CHECK(kind != HostKind::kPrompt);
  if (!CanHold(saved.n_bytes() + static_cast<int64_t>(state_size))) return nullptr;
  Drop(kind, owner);
  return Add({kind, owner}, std::move(saved), state_size);
}

const SavedSequence* HostStore::FindOrNull(HostKind kind, int64_t owner) const {
  const auto it = owned_.find({kind, owner});
  return it == owned_.end() ? nullptr : &it->second->saved;
}

void HostStore::Drop(HostKind kind, int64_t owner) {
  const auto it = owned_.find({kind, owner});
  if (it != owned_.end()) Erase(it->second);
}

SavedSequence* HostStore::GrowOrNull(HostKind kind, int64_t owner, size_t shared_size) {
  const auto own = owned_.find({kind, owner});
  if (own == owned_.end()) return nullptr;
  SavedSequence& saved = own->second->saved;
  POLYKV_CHECK(saved.shared_state.size() == 0);
  if (!CanHold(saved.n_bytes() + static_cast<int64_t>(shared_size))) return nullptr;
  entries_.splice(entries_.end(), entries_, own->second);  // not one of those that make room
  MakeRoom(static_cast<int64_t>(shared_size), 0);
  HostBytes bytes(shared_size);
  if (bytes.size() != shared_size) return nullptr;
  Count(*own->second, -1);
  saved.shared_state = std::move(bytes);
  Count(*own->second, +1);
  return &saved;
}

void HostStore::MakeRoom(int64_t n_bytes, size_t n_entries) {
  while (entries_.size() + n_entries > limits_.max_entries ||
         (limits_.max_bytes >= 0 && this->n_bytes() + n_bytes > limits_.max_bytes)) {
    Erase(entries_.begin());
  }
}

SavedSequence* HostStore::Add(Key key, SavedSequence saved, size_t state_size) {
  MakeRoom(saved.n_bytes() + static_cast<int64_t>(state_size), 1);
  saved.state = HostBytes(state_size);
  if (saved.state.size() != state_size) return nullptr;
  const auto added = entries_.insert(entries_.end(), {std::move(key), std::move(saved)});
  Count(*added, +1);
  if (added->key.first != HostKind::kPrompt) owned_.emplace(added->key, added);
  return &added->saved;
}

HostStore::Entries::iterator HostStore::Erase(Entries::iterator it) {
  Count(*it, -1);
  if (it->key.first != HostKind::kPrompt) owned_.erase(it->key);
  return entries_.erase(it);
}

void HostStore::Count(const Entry& entry, int32_t sign) {
  Usage& usage = usage_[static_cast<size_t>(entry.key.first)];
  usage.n_bytes += sign * entry.saved.n_bytes();
  usage.n_entries += sign;
}

void HostStore::CheckIntegrity(
    const std::function<bool(HostKind kind, int64_t owner)>& is_known) const {
  std::array<Usage, 3> usage;
  for (const Entry& entry : entries_) {
    const auto& [kind, owner] = entry.key;
    POLYKV_CHECK(kind == HostKind::kPrompt || is_known(kind, owner));
    POLYKV_CHECK(kind == HostKind::kPrompt || &owned_.at(entry.key)->saved == &entry.saved);
    usage[static_cast<size_t>(kind)].n_bytes += entry.saved.n_bytes();
    ++usage[static_cast<size_t>(kind)].n_entries;
  }
  POLYKV_CHECK(usage == usage_);
  POLYKV_CHECK(limits_.max_bytes < 0 || n_bytes() <= limits_.max_bytes);
  POLYKV_CHECK(entries_.size() <= limits_.max_entries);
}

}  // namespace polykv
