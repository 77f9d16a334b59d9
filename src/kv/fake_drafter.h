// Drafts for FakeBackend: what it will say, but for some wrong tokens.
#pragma once

#include <cstdint>
#include <map>

#include "kv/drafter.h"

namespace polykv {

class FakeBackend;

// Aborts when a generation was not begun, when its tokens are not the sequence's cells, and on an
// Accept that no draft allows.
class FakeDrafter final : public Drafter {
 public:
  // About one token in `wrong_every` is wrong (0: none), the same ones in every run.
  FakeDrafter(const FakeBackend* backend, int32_t n_max, int32_t wrong_every)
      : backend_(backend), n_max_(n_max), wrong_every_(wrong_every) {}

  int32_t n_max() const override { return n_max_; }
  void Begin(SeqId seq, const std::vector<Token>& prompt) override;
  void Draft(std::span<DraftRequest> requests) override;
  void Accept(SeqId seq, int32_t n_accepted) override;

 private:
  bool IsWrong(Pos pos) const;

  const FakeBackend* const backend_;
  const int32_t n_max_;
  const int32_t wrong_every_;
  std::map<SeqId, int32_t> n_open_;  // tokens of the latest draft; 0: accepted, or none
};

}  // namespace polykv
