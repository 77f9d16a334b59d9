// The running softmax: scores become weights, relative to the greatest score so far.
#pragma once

#include "attention/geometry.h"

namespace polykv::POLYKV_ISA {

inline constexpr float kNoScore = -1e30F;  // the maximum of a row that has seen no cell

inline void ScaleRow(float* row, int64_t size, float factor) {
  for (int64_t d = 0; d < size; d += kLanes) Store(row + d, Load(row + d) * factor);
}

// One lane vector of rows and a tile's scores for it, kRunLanes floats from cell to cell.
inline void WeighLanes(float* scores, Vector maxima, const Partial& partial, int64_t first_row,
                       int64_t value_size) {
  const Vector before = Load(partial.maxima + first_row);
  Vector sums = Load(partial.sums + first_row);
  float factors[kLanes];
  Store(factors, Exp2(before - maxima));
  bool grown = false;
  for (const float factor : factors) grown = grown || factor != 1.0F;
  if (grown) {
    sums *= Load(factors);
    Store(partial.maxima + first_row, maxima);
    for (int64_t i = 0; i < kLanes; ++i) {
      if (factors[i] == 1.0F) continue;
      ScaleRow(partial.out + (first_row + i) * value_size, value_size, factors[i]);
    }
  }
  Vector odd = {};
  for (int64_t cell = 0; cell < kTile; cell += 2) {
    float* const at = scores + cell * kRunLanes;
    const Vector first = Exp2(Load(at) - maxima);
    const Vector second = Exp2(Load(at + kRunLanes) - maxima);
    Store(at, first);
    Store(at + kRunLanes, second);
    sums += first;
    odd += second;
  }
  Store(partial.sums + first_row, sums + odd);
}

// One row and n scores of listed cells; those up to the next full vector are changed too.
inline void WeighList(float* scores, int64_t n, const Partial& partial, int64_t row,
                      int64_t value_size) {
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = n; i < padded; ++i) scores[i] = -__builtin_inff();
  Vector greatest = Splat(partial.maxima[row]);
  for (int64_t i = 0; i < padded; i += kLanes) greatest = Greatest(greatest, Load(scores + i));
  const float maximum = GreatestLane(greatest);
  if (maximum != partial.maxima[row]) {
    float factors[kLanes];
    Store(factors, Exp2(Splat(partial.maxima[row] - maximum)));
    partial.maxima[row] = maximum;
    partial.sums[row] *= factors[0];
    ScaleRow(partial.out + row * value_size, value_size, factors[0]);
  }
  Vector sums = {};
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Vector weights = Exp2(Load(scores + i) - maximum);
    Store(scores + i, weights);
    sums += weights;
  }
  partial.sums[row] += Sum(sums);
}

}  // namespace polykv::POLYKV_ISA
