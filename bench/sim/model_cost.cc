#include "sim/model_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace polykv {
namespace {

double Along(const ModelCost::Point& a, const ModelCost::Point& b, double rows) {
  return a.us + (b.us - a.us) * (rows - a.rows) / (b.rows - a.rows);
}

double DecodeUs(const std::vector<ModelCost::Point>& points, double rows) {
  POLYKV_CHECK(!points.empty());
  if (points.size() == 1) return points[0].us;
  size_t right = 1;
  while (right + 1 < points.size() && points[right].rows < rows) ++right;
  return std::max(0.0, Along(points[right - 1], points[right], rows));
}

}  // namespace

StepContent ContentOf(const StepBatch& batch) {
  StepContent content;
  for (const BatchToken& entry : batch) {
    ++(entry.output ? content.n_rows : content.n_prompt_tokens);
    (entry.output ? content.n_row_cells : content.n_prompt_cells) += entry.pos + 1;
  }
  return content;
}

TimeUs ModelCost::StepUs(const StepContent& content) const {
  double us = DecodeUs(decode, content.n_rows);
  us += cell_us * static_cast<double>(content.n_row_cells);
  if (content.n_prompt_tokens > 0) us += prompt_us;
  us += prompt_token_us * content.n_prompt_tokens;
  us += prompt_cell_us * static_cast<double>(content.n_prompt_cells);
  return std::max<TimeUs>(1, std::llround(us));
}

}  // namespace polykv
