#include "engine/adapter_turn.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace polykv {
namespace {

bool Contains(std::span<const AdapterSet* const> sets, const AdapterSet& wanted) {
  return std::any_of(sets.begin(), sets.end(),
                     [&](const AdapterSet* set) { return *set == wanted; });
}

}  // namespace

const AdapterSet& AdapterTurn::Next(std::span<const AdapterSet* const> wanting) const {
  POLYKV_CHECK(!wanting.empty());
  const auto age = [this](const AdapterSet* set) {  // smaller: longer ago; none yet: the smallest
    const auto it = std::find(past_.begin(), past_.end(), *set);
    return it == past_.end() ? -1 : std::distance(past_.begin(), it);
  };
  const bool goes_on = !past_.empty() && n_steps_ < kStepsInARow && Contains(wanting, past_.back());
  if (goes_on) return past_.back();
  return **std::min_element(
      wanting.begin(), wanting.end(),
      [&](const AdapterSet* a, const AdapterSet* b) { return age(a) < age(b); });
}

void AdapterTurn::Took(const AdapterSet& set, std::span<const AdapterSet* const> wanting) {
  const bool same = !past_.empty() && past_.back() == set;
  n_steps_ = same ? n_steps_ + 1 : 1;
  std::erase_if(past_,
                [&](const AdapterSet& past) { return past == set || !Contains(wanting, past); });
  past_.push_back(set);
}

}  // namespace polykv
