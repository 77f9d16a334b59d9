// Speculation: a cheap guess at what streams say next, so that one step of the model can check
// several tokens of each. A wrong guess costs time, never text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace polykv {

struct DraftRequest {
  SeqId seq = kNoSeq;
  const std::vector<Token>* tokens = nullptr;  // whose cells the sequence holds
  Token last = 0;                              // sampled after them; its cell is not yet computed
  int32_t n_max = 0;                           // most tokens wanted, > 0
  std::vector<Token> draft;  // the answer: guesses from the token after `last` on; empty: none
};

// Engine thread only, except where said.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual int32_t n_max() const = 0;  // most tokens of a draft; any thread; constant

  // `seq` holds exactly the prompt of a new generation. Before the generation's first Draft.
  virtual void Begin(SeqId seq, const std::vector<Token>& prompt) = 0;

  // Fills the drafts, of one sequence each. The sequences' cells are as before.
  virtual void Draft(std::span<DraftRequest> requests) = 0;

  // The model agreed with the first `n_accepted` tokens of the latest draft of `seq`. At most once
  // per draft; never for a draft that the model did not see.
  virtual void Accept(SeqId seq, int32_t n_accepted) = 0;
};

}  // namespace polykv
