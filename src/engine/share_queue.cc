#include "engine/share_queue.h"

#include <algorithm>

namespace polykv {

// A window moves on and a recurrent state has no positions: what a part of a sequence is there
// depends on when it is asked for. A split cache copies whole sequences only.
bool ShareQueue::CanWait() const {
  return info().unified && info().sharing == Sharing::kAnyPosition;
}

void ShareQueue::Share(SeqId from, SeqId to, Pos length) {
  if (!CanWait()) return backend_->ShareRange(from, to, 0, length);
  if (length > 0) shares_.push_back({.from = from, .to = to, .begin = 0, .end = length});
}

void ShareQueue::Clone(SeqId from, SeqId to, Pos length) {
  if (CanWait()) return Share(from, to, length);
  backend_->CloneSequence(from, to);
}

const ShareQueue::PendingShare* ShareQueue::FindOrNull(SeqId to) const {
  const auto it = std::find_if(shares_.begin(), shares_.end(),
                               [to](const PendingShare& share) { return share.to == to; });
  return it == shares_.end() ? nullptr : &*it;
}

Pos ShareQueue::Arrived(SeqId to, Pos length) const {
  const PendingShare* const share = FindOrNull(to);
  return share == nullptr ? length : std::min(length, share->begin);
}

void ShareQueue::DoPiece(int32_t n_cells) {
  if (shares_.empty()) return;
  PendingShare& share = shares_.front();
  const Pos end = std::min(share.end, share.begin + n_cells);
  backend_->ShareRange(share.from, share.to, share.begin, end);
  share.begin = end;
  if (share.begin == share.end) shares_.pop_front();
}

ModelBackend& ShareQueue::Settled(SeqId seq) {
  const auto involved = [seq](const PendingShare& share) {
    return share.from == seq || share.to == seq;
  };
  while (std::any_of(shares_.begin(), shares_.end(), involved)) {
    DoPiece(shares_.front().end - shares_.front().begin);
  }
  return *backend_;
}

Pos ShareQueue::MinPos(SeqId seq) const { return Waits(seq) ? 0 : backend_->MinPos(seq); }

}  // namespace polykv
