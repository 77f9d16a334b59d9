#include "kv/fake_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "kv/fake_backend.h"

namespace polykv {

void FakeDrafter::Begin(SeqId seq, const std::vector<Token>& prompt) {
  POLYKV_CHECK(backend_->Positions(seq).size() == prompt.size());
  n_open_[seq] = 0;
}

void FakeDrafter::Draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    POLYKV_CHECK(n_open_.contains(request.seq) && request.n_max > 0 && request.draft.empty());
    POLYKV_CHECK(backend_->Positions(request.seq).size() == request.tokens->size());
    std::vector<Token> ahead = {request.last};
    const auto n_cells = static_cast<Pos>(request.tokens->size());
    for (int32_t i = 0; i < std::min(n_max_, request.n_max); ++i) {
      Token token = backend_->ChoiceAfter(request.seq, ahead);
      if (IsWrong(n_cells + i)) token = token == 'z' + 1 ? 'a' + 1 : token + 1;
      ahead.push_back(token);
    }
    request.draft.assign(ahead.begin() + 1, ahead.end());
    n_open_[request.seq] = static_cast<int32_t>(request.draft.size());
  }
}

void FakeDrafter::Accept(SeqId seq, int32_t n_accepted) {
  POLYKV_CHECK(n_open_[seq] > 0 && n_accepted >= 0 && n_accepted <= n_open_[seq]);
  n_open_[seq] = 0;
}

bool FakeDrafter::IsWrong(Pos pos) const {
  constexpr uint32_t kScatter = 2'654'435'761U;  // Knuth's multiplicative hash
  if (wrong_every_ == 0) return false;
  return (static_cast<uint32_t>(pos) * kScatter >> 16) % static_cast<uint32_t>(wrong_every_) == 0;
}

}  // namespace polykv
