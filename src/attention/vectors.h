// Vectors of the instruction set that the including source is compiled for. POLYKV_ISA names a
// namespace of its own for each, so that no two of them share a function.
#pragma once

#ifndef POLYKV_ISA
#error "only for kernel_*.cc, which define POLYKV_ISA"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace polykv::POLYKV_ISA {

// kAccumulatorRows * kAccumulatorVectors sums are kept in registers.
#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kAccumulatorRows = 8;
inline constexpr int kAccumulatorVectors = 3;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kAccumulatorRows = 4;
inline constexpr int kAccumulatorVectors = 3;
#else
inline constexpr int kLanes = 8;
inline constexpr int kAccumulatorRows = 2;
inline constexpr int kAccumulatorVectors = 2;
#endif

using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;
using Words [[gnu::vector_size(kLanes * sizeof(float))]] = uint32_t;

template <typename T>
T Least(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T Greatest(T a, T b) {
  return a < b ? b : a;
}

inline int CountBits(uint64_t word) { return __builtin_popcountll(word); }
// The position of the lowest bit that is set; 64 if there is none.
inline int FirstBit(uint64_t word) { return word == 0 ? 64 : __builtin_ctzll(word); }

inline Vector Load(const float* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}
inline void Store(float* to, Vector vector) { std::memcpy(to, &vector, sizeof(vector)); }
inline Vector Splat(float value) { return value - Vector{}; }
inline Vector Greatest(Vector a, Vector b) { return a > b ? a : b; }

inline float Sum(Vector vector) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(vector);
#else
  float lanes[kLanes];
  Store(lanes, vector);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
#endif
}

inline float GreatestLane(Vector vector) {
  float lanes[kLanes];
  Store(lanes, vector);
  float greatest = lanes[0];
  for (int i = 1; i < kLanes; ++i) greatest = Greatest(greatest, lanes[i]);
  return greatest;
}

// 2^x for x <= 0, to about 1e-7 of it; 0 below 2^-126, -inf included. The polynomial is that of
// 2^f on [-0.5, 0.5].
inline Vector Exp2(Vector x) {
  const Vector rounder = Splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vector rounded = x + rounder;
  const Vector f = x - (rounded - rounder);
  Vector power = Splat(1.535336188319500e-4F);
  power = power * f + 1.339887440266574e-3F;
  power = power * f + 9.618437357674640e-3F;
  power = power * f + 5.550332471162809e-2F;
  power = power * f + 2.402264791363012e-1F;
  power = power * f + 6.931472028550421e-1F;
  power = power * f + 1.0F;
  const Words exponent = reinterpret_cast<Words>(rounded) << 23;
  const Vector scaled = reinterpret_cast<Vector>(reinterpret_cast<Words>(power) + exponent);
  return x < -126.0F ? Vector{} : scaled;
}

// IEEE half precision, every value.
inline float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = (half & 0x7FFFU) << 13;
  float value = 0;
  std::memcpy(&value, &magnitude, sizeof(value));
  value *= 0x1p112F;  // the two exponents' biases
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((half & 0x7C00U) == 0x7C00U) bits = 0x7F800000U | magnitude;  // infinite, or no number
  bits |= (half & 0x8000U) << 16;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline Vector LoadHalves(const std::byte* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  uint16_t halves[kLanes];
  std::memcpy(halves, from, sizeof(halves));
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = HalfToFloat(halves[i]);
  return Load(lanes);
#endif
}

inline constexpr uint16_t kMaskedHalf = 0xFC00;  // -inf

// One tile of one token's mask.
struct MaskWord {
  uint64_t open = 0;    // bit i: cell i is not masked
  bool biased = false;  // an open cell has another value than 0
};

// REQUIRES: 64 readable values.
inline MaskWord ScanMask(const uint16_t* mask) {
  MaskWord word;
#if defined(__AVX512BW__)
  const __m512i masked = _mm512_set1_epi16(static_cast<int16_t>(kMaskedHalf));
  for (int half = 0; half < 2; ++half) {
    const __m512i values = _mm512_loadu_si512(mask + 32 * half);
    const __mmask32 open = _mm512_cmpneq_epi16_mask(values, masked);
    word.open |= static_cast<uint64_t>(open) << (32 * half);
    word.biased |= _mm512_mask_test_epi16_mask(open, values, values) != 0;
  }
#elif defined(__AVX2__)
  const __m256i masked = _mm256_set1_epi16(static_cast<int16_t>(kMaskedHalf));
  const __m256i zero = _mm256_setzero_si256();
  for (int quarter = 0; quarter < 4; ++quarter) {
    const __m256i values =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mask + 16 * quarter));
    const __m256i is_masked = _mm256_cmpeq_epi16(values, masked);
    const __m256i is_plain = _mm256_or_si256(is_masked, _mm256_cmpeq_epi16(values, zero));
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(is_masked), _mm256_extracti128_si256(is_masked, 1));
    const auto closed = static_cast<uint32_t>(_mm_movemask_epi8(bytes));
    word.open |= static_cast<uint64_t>(~closed & 0xFFFFU) << (16 * quarter);
    word.biased |= _mm256_movemask_epi8(is_plain) != -1;
  }
#else
  for (int i = 0; i < 64; ++i) {
    const bool open = mask[i] != kMaskedHalf;
    word.open |= static_cast<uint64_t>(open) << i;
    word.biased |= open && mask[i] != 0;
  }
#endif
  return word;
}

}  // namespace polykv::POLYKV_ISA
