#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/model_backend.h"

namespace polykv {

struct ShareCostPlan {
  std::vector<int32_t> cells = {2'048, 8'192, 32'768, 131'072};
  std::vector<int32_t> holders = {1, 16, 64, 240};  // ascending
  int32_t runs = 5;

  int32_t n_ctx() const;
  int32_t n_seq_max() const;
};

// What it costs the engine to attach a request to a pool, and to fork the pool at its end, with so
// many cells in it and so many sequences that hold them; and to give that up again. A row each, of
// medians; then one with what a holder takes of host memory. `name`: of the backend.
void MeasureShareCost(ModelBackend* model, const std::string& name, const ShareCostPlan& plan);

}  // namespace polykv
