#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace polykv {

inline double Median(std::vector<double> values) {  // the upper one of two in the middle
  POLYKV_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace polykv
