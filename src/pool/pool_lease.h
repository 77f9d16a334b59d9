#pragma once

#include <memory>

#include "base/types.h"

namespace polykv {

struct PoolNode;
class PoolTree;

// A hold on the cells [0, length) of a pool, by a sequence or by a child. Ends when destroyed.
// Engine thread only.
class PoolLease {
 public:
  PoolLease() = default;
  PoolLease(PoolLease&& other) noexcept;
  PoolLease& operator=(PoolLease&& other) noexcept;
  ~PoolLease() { Reset(); }

  const PoolNode* node() const { return node_.get(); }  // null: no lease
  Pos length() const { return length_; }                // 0: holds no cells
  void Shrink(Pos length);                              // REQUIRES: 0 <= length <= length()
  PoolLease Another() const;                            // of the same length, for another sequence
  void Reset();

 private:
  friend class PoolTree;
  PoolLease(PoolTree* tree, std::shared_ptr<PoolNode> node, Pos length);

  PoolTree* tree_ = nullptr;
  std::shared_ptr<PoolNode> node_;
  Pos length_ = 0;
};

}  // namespace polykv
