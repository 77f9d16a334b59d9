// Operators of ours under ggml, which asks each of its "extra buffer types" before it plans or
// computes an operation; llama.cpp and its models stay as they are.
#pragma once

#include "traits.h"

namespace polykv {

// Computes some of a graph's operations in ggml's place. An operation for which compute_forward
// returns false is computed by ggml.
class Operator : public ggml::cpu::tensor_traits {
 public:
  // Asked by every thread before each operation of a graph.
  virtual bool Takes(const ggml_tensor& op) const = 0;
};

// Whether there is a list of ggml's to put operators into.
bool CanAddOperators();

// From now on `op` is asked. It must live as long as the process. To be called before the first
// model is loaded, by one thread. REQUIRES: CanAddOperators().
void AddOperator(Operator* op);

}  // namespace polykv
