#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace polykv {

struct IdleCellsPlan {
  std::vector<int32_t> cells = {0, 4'096, 16'384, 65'536};
  std::vector<int32_t> streams = {1, 4};
  int32_t steps = 15;
};

// How long a Decode of some streams takes beside so many cells of sequences that idle, with flash
// attention and without: a row each, of medians. Then once more when those are gone, and when the
// streams' own cells, which lay behind them, have been moved to where they were.
void MeasureIdleCells(const std::string& model_path, const IdleCellsPlan& plan);

}  // namespace polykv
