#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/kernels.h"
#include "attention/limits.h"

namespace polykv {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

// Exact for what the tests use: multiples of 1/256 between -4 and 4, and -inf.
uint16_t ToHalf(double value) {
  if (value == kMasked) return 0xFC00;
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<uint32_t>((fraction * 2 - 1) * 1024);
  return static_cast<uint16_t>((value < 0 ? 0x8000U : 0U) |
                               (static_cast<uint32_t>(exponent + 14) << 10) | mantissa);
}

// A cache type of the tests: bytes that stand for multiples of 1/64.
void WidenBytes(const void* from, float* to, int64_t n) {
  const auto* const bytes = static_cast<const int8_t*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(bytes[i]) / 64.0F;
}

enum class CacheType { kHalf, kBytes };

struct Shape {
  int64_t n_tokens = 1;
  int64_t n_cells = 256;
  int64_t n_heads = 9;
  int64_t n_kv_heads = 3;
  int64_t key_size = 64;
  int64_t value_size = 64;
  CacheType type = CacheType::kHalf;
  bool sinks = false;
};

std::string Text(const Shape& shape) {
  return std::to_string(shape.n_tokens) + " tokens, " + std::to_string(shape.n_cells) + " cells, " +
         std::to_string(shape.n_heads) + "/" + std::to_string(shape.n_kv_heads) + " heads of " +
         std::to_string(shape.key_size) + "/" + std::to_string(shape.value_size) +
         (shape.type == CacheType::kHalf ? "" : ", bytes") + (shape.sinks ? ", sinks" : "");
}

// A call with everything that it points to.
class Example {
 public:
  Example(const Shape& shape, std::mt19937* random) : shape_(shape), random_(*random) {
    queries_.resize(static_cast<size_t>(shape.n_tokens * shape.n_heads * shape.key_size));
    for (float& value : queries_) value = static_cast<float>(Draw());
    FillCache(shape.key_size, &keys_, &key_bytes_);
    FillCache(shape.value_size, &values_, &value_bytes_);
    if (shape.sinks) sinks_.resize(static_cast<size_t>(shape.n_heads));
    for (float& sink : sinks_) sink = static_cast<float>(Draw());
    mask_.assign(static_cast<size_t>(shape.n_tokens * shape.n_cells), kMasked);
  }

  const Shape& shape() const { return shape_; }
  double& Mask(int64_t token, int64_t cell) {
    return mask_[static_cast<size_t>(token * shape_.n_cells + cell)];
  }

  // A function of (token, cell): what is added to their scores.
  template <typename MaskOf>
  void SetMask(const MaskOf& mask_of) {
    for (int64_t token = 0; token < shape_.n_tokens; ++token) {
      for (int64_t cell = 0; cell < shape_.n_cells; ++cell) {
        Mask(token, cell) = mask_of(token, cell);
      }
    }
  }

  // The cell's keys and values become no numbers.
  void Spoil(int64_t cell) {
    for (const auto& [bytes, size] :
         {std::pair(&key_bytes_, shape_.key_size), std::pair(&value_bytes_, shape_.value_size)}) {
      const auto row = static_cast<size_t>(shape_.n_kv_heads * size) * sizeof(uint16_t);
      std::memset(bytes->data() + static_cast<size_t>(cell) * row, 0x7F, row);
    }
  }

  // What the kernel makes of it: [token][head][value].
  std::vector<float> Run(const AttentionKernel& kernel, int n_threads) const {
    std::vector<uint16_t> mask(mask_.size());
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = ToHalf(mask_[i]);
    std::vector<float> out(
        static_cast<size_t>(shape_.n_tokens * shape_.n_heads * shape_.value_size), NAN);
    const AttentionCall call = MakeCall(mask, out.data());
    EXPECT_TRUE(CoversShape(call));
    std::vector<std::byte> work(kernel.work_bytes(call, n_threads), std::byte{0xFF});
    Crew crew(n_threads);
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
      threads.emplace_back([&, i] { kernel.compute(call, crew.Member(i), work.data()); });
    }
    for (std::thread& thread : threads) thread.join();
    return out;
  }

  std::vector<double> Exact() const {
    std::vector<double> out;
    for (int64_t token = 0; token < shape_.n_tokens; ++token) {
      for (int64_t head = 0; head < shape_.n_heads; ++head) AppendExact(token, head, &out);
    }
    return out;
  }

 private:
  // Threads that wait for each other.
  class Crew {
   public:
    explicit Crew(int size) : size_(size) {}
    Team Member(int index) {
      return {.index = index, .size = size_, .barrier = &Wait, .context = this};
    }

   private:
    static void Wait(void* context) {
      auto* const crew = static_cast<Crew*>(context);
      const int round = crew->round_.load();
      if (crew->arrived_.fetch_add(1) + 1 == crew->size_) {
        crew->arrived_.store(0);
        crew->round_.fetch_add(1);
        crew->round_.notify_all();
      } else {
        crew->round_.wait(round);
      }
    }
    const int size_;
    std::atomic<int> arrived_{0};
    std::atomic<int> round_{0};
  };

  double Draw() { return std::normal_distribution<double>(0.0, 1.0)(random_); }

  void FillCache(int64_t size, std::vector<double>* exact, std::vector<std::byte>* stored) {
    exact->resize(static_cast<size_t>(shape_.n_cells * shape_.n_kv_heads * size));
    for (double& value : *exact) value = std::clamp(std::round(Draw() * 32) / 64, -1.9, 1.9);
    for (double& value : *exact) value = std::round(value * 64) / 64;
    for (const double value : *exact) {
      if (shape_.type == CacheType::kBytes) {
        stored->push_back(static_cast<std::byte>(static_cast<int8_t>(value * 64)));
      } else {
        const uint16_t half = ToHalf(value);
        stored->push_back(static_cast<std::byte>(half & 0xFF));
        stored->push_back(static_cast<std::byte>(half >> 8));
      }
    }
  }

  AttentionRows CacheRows(const std::vector<std::byte>& stored, int64_t size) const {
    const bool bytes = shape_.type == CacheType::kBytes;
    const size_t row = static_cast<size_t>(size) * (bytes ? 1 : 2);
    return {.data = stored.data(),
            .stride = row * static_cast<size_t>(shape_.n_kv_heads),
            .head_stride = row,
            .row_bytes = row,
            .to_float = bytes ? &WidenBytes : nullptr};
  }

  AttentionCall MakeCall(const std::vector<uint16_t>& mask, float* out) const {
    const size_t row = static_cast<size_t>(shape_.key_size) * sizeof(float);
    return {.n_tokens = shape_.n_tokens,
            .n_heads = shape_.n_heads,
            .n_kv_heads = shape_.n_kv_heads,
            .n_cells = shape_.n_cells,
            .key_size = shape_.key_size,
            .value_size = shape_.value_size,
            .queries = {.data = reinterpret_cast<const std::byte*>(queries_.data()),
                        .stride = row * static_cast<size_t>(shape_.n_heads),
                        .head_stride = row,
                        .row_bytes = row},
            .keys = CacheRows(key_bytes_, shape_.key_size),
            .values = CacheRows(value_bytes_, shape_.value_size),
            .mask = reinterpret_cast<const std::byte*>(mask.data()),
            .mask_stride = static_cast<size_t>(shape_.n_cells) * sizeof(uint16_t),
            .sinks = sinks_.empty() ? nullptr : sinks_.data(),
            .scale = Scale(),
            .out = out};
  }

  float Scale() const { return 2.0F / std::sqrt(static_cast<float>(shape_.key_size)); }

  void AppendExact(int64_t token, int64_t head, std::vector<double>* out) const {
    const int64_t kv_head = head / (shape_.n_heads / shape_.n_kv_heads);
    const auto query = queries_.begin() + (token * shape_.n_heads + head) * shape_.key_size;
    std::vector<double> sum(static_cast<size_t>(shape_.value_size));
    std::vector<double> scores;
    double greatest = sinks_.empty() ? kMasked : sinks_[static_cast<size_t>(head)];
    for (int64_t cell = 0; cell < shape_.n_cells; ++cell) {
      const double mask = mask_[static_cast<size_t>(token * shape_.n_cells + cell)];
      double score = 0;
      const auto key = keys_.begin() + (cell * shape_.n_kv_heads + kv_head) * shape_.key_size;
      if (mask != kMasked) {
        for (int64_t d = 0; d < shape_.key_size; ++d) score += query[d] * key[d];
      }
      scores.push_back(score * Scale() + mask);
      greatest = std::max(greatest, scores.back());
    }
    double weight_sum = sinks_.empty() ? 0 : std::exp(sinks_[static_cast<size_t>(head)] - greatest);
    for (int64_t cell = 0; cell < shape_.n_cells; ++cell) {
      if (scores[static_cast<size_t>(cell)] == kMasked) continue;
      const double weight = std::exp(scores[static_cast<size_t>(cell)] - greatest);
      const auto value = values_.begin() + (cell * shape_.n_kv_heads + kv_head) * shape_.value_size;
      weight_sum += weight;
      for (int64_t d = 0; d < shape_.value_size; ++d)
        sum[static_cast<size_t>(d)] += weight * value[d];
    }
    for (const double value : sum) out->push_back(weight_sum > 0 ? value / weight_sum : 0);
  }

  const Shape shape_;
  std::mt19937& random_;
  std::vector<float> queries_;
  std::vector<double> keys_;
  std::vector<double> values_;
  std::vector<std::byte> key_bytes_;
  std::vector<std::byte> value_bytes_;
  std::vector<float> sinks_;
  std::vector<double> mask_;
};

class AttentionTest : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    const std::optional<AttentionKernel> kernel = KernelFor(GetParam());
    if (!kernel.has_value()) GTEST_SKIP() << "this processor cannot";
    kernel_ = *kernel;
  }

  int64_t Between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  // Near the exact result with one thread, and the same bits with three.
  void ExpectExact(const Example& example, const std::string& what, double tolerance = 2e-6) {
    const std::vector<float> out = example.Run(kernel_, 1);
    const std::vector<double> exact = example.Exact();
    double worst = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double off = std::abs(out[i] - exact[i]);
      worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(worst, off);
    }
    EXPECT_LT(worst, tolerance) << what << ": " << Text(example.shape());
    const std::vector<float> by_three = example.Run(kernel_, 3);
    EXPECT_EQ(std::memcmp(out.data(), by_three.data(), out.size() * sizeof(float)), 0)
        << what << ": the bits depend on the threads: " << Text(example.shape());
  }

  // Every token sees `prefix` cells and, behind them, each n-th one of its own.
  void ShareAndInterleave(Example* example, int64_t prefix) {
    const int64_t n = example->shape().n_tokens;
    example->SetMask([&](int64_t token, int64_t cell) {
      return cell < prefix || cell % n == token ? 0.0 : kMasked;
    });
  }

  AttentionKernel kernel_;
  std::mt19937 random_{2024};
};

TEST_P(AttentionTest, DecodesOnASharedPrefix) {
  for (const int64_t n_tokens : {1, 2, 3, 5, 8, 16, 31}) {
    Example example({.n_tokens = n_tokens, .n_cells = 768}, &random_);
    ShareAndInterleave(&example, 450);
    ExpectExact(example, "shared");
  }
}

TEST_P(AttentionTest, PrefillsUnderACausalMask) {
  for (const int64_t n_tokens : {33, 48, 49, 130}) {
    Example example({.n_tokens = n_tokens, .n_cells = 512}, &random_);
    const int64_t before = Between(0, 512 - n_tokens);
    example.SetMask(
        [&](int64_t token, int64_t cell) { return cell <= before + token ? 0.0 : kMasked; });
    ExpectExact(example, "causal");
  }
}

TEST_P(AttentionTest, WindowsHolesAndClosedRows) {
  for (const int64_t n_tokens : {1, 7, 20, 64}) {
    Example example({.n_tokens = n_tokens, .n_cells = 640}, &random_);
    const int64_t window = Between(1, 200);
    example.SetMask([&](int64_t token, int64_t cell) {
      const int64_t position = 300 + token;
      const bool hole = cell / 16 % 5 == 2;
      const bool closed = token % 6 == 3;
      return cell <= position && cell > position - window && !hole && !closed ? 0.0 : kMasked;
    });
    ExpectExact(example, "window");
  }
}

TEST_P(AttentionTest, NobodySeesAnything) {
  for (const bool sinks : {false, true}) {
    Example example({.n_tokens = 9, .n_cells = 256, .sinks = sinks}, &random_);
    ExpectExact(example, "closed");
  }
}

TEST_P(AttentionTest, GroupsHaveTheirOwnPrefixes) {
  for (const int64_t n_groups : {2, 3, 5}) {
    Example example({.n_tokens = 16, .n_cells = 900}, &random_);
    example.SetMask([&](int64_t token, int64_t cell) {
      if (cell >= 750) return cell % 16 == token ? 0.0 : kMasked;
      return cell * n_groups / 750 == token * n_groups / 16 ? 0.0 : kMasked;
    });
    ExpectExact(example, "groups");
  }
}

TEST_P(AttentionTest, BiasesAreAdded) {
  for (const int64_t n_tokens : {1, 6, 50}) {
    Example example({.n_tokens = n_tokens, .n_cells = 320}, &random_);
    example.SetMask([&](int64_t token, int64_t cell) {
      return (token + cell) % 7 == 0 ? kMasked : -static_cast<double>(cell % 9) / 8;
    });
    ExpectExact(example, "bias");
  }
}

TEST_P(AttentionTest, FarScoresDoNotOverflow) {
  Example example({.n_tokens = 4, .n_cells = 256}, &random_);
  example.SetMask([](int64_t, int64_t cell) { return cell < 128 ? -3.5 * 1024 : 0.0; });
  example.Mask(1, 200) = kMasked;
  for (int64_t cell = 128; cell < 256; ++cell) example.Mask(2, cell) = kMasked;
  ExpectExact(example, "far", 1e-4);  // a float's last bit of such a score
}

TEST_P(AttentionTest, WhatIsNoNumberReachesOnlyThoseWhoSeeIt) {
  Example example({.n_tokens = 16, .n_cells = 256}, &random_);
  example.SetMask(
      [](int64_t token, int64_t cell) { return cell == 40 && token != 3 ? kMasked : 0.0; });
  example.Spoil(40);
  const std::vector<float> out = example.Run(kernel_, 1);
  const std::vector<double> exact = example.Exact();
  const auto row = static_cast<size_t>(example.shape().n_heads * example.shape().value_size);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i / row == 3) {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    } else {
      ASSERT_NEAR(out[i], exact[i], 2e-6) << i;
    }
  }
}

TEST_P(AttentionTest, RandomShapes) {
  constexpr int64_t kSizes[] = {64, 80, 96, 128, 256, 16, 112};
  for (int round = 0; round < 40; ++round) {
    const int64_t n_kv_heads = Between(1, 5);
    const int64_t group = round % 10 == 0 ? 20 : Between(1, 8);
    Shape shape{.n_tokens = Between(0, 3) == 0 ? Between(30, 100) : Between(1, 20),
                .n_cells = Between(1, 400),
                .n_heads = n_kv_heads * group,
                .n_kv_heads = n_kv_heads,
                .key_size = kSizes[Between(0, 6)],
                .value_size = kSizes[Between(0, 6)],
                .type = Between(0, 1) == 0 ? CacheType::kHalf : CacheType::kBytes,
                .sinks = Between(0, 2) == 0};
    Example example(shape, &random_);
    const int64_t shared = Between(0, shape.n_cells);
    const int64_t percent = Between(0, 100);
    example.SetMask([&](int64_t token, int64_t cell) {
      if (token % 11 == 7) return kMasked;
      return cell < shared || Between(0, 99) < percent ? 0.0 : kMasked;
    });
    ExpectExact(example, "round " + std::to_string(round));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest,
                         testing::Values(InstructionSet::kPortable, InstructionSet::kAvx2,
                                         InstructionSet::kAvx512),
                         [](const auto& set) { return std::string(Name(set.param)); });

TEST(AttentionShape, WhatIsNotCovered) {
  AttentionCall call{.n_tokens = 1, .n_heads = 9, .n_kv_heads = 3, .n_cells = 64};
  call.key_size = call.value_size = 64;
  EXPECT_TRUE(CoversShape(call));
  call.key_size = 576;
  EXPECT_FALSE(CoversShape(call));
  call.key_size = 72;
  EXPECT_FALSE(CoversShape(call));
  call.key_size = 64;
  call.n_heads = 3 * (kMaxGroup + 1);
  EXPECT_FALSE(CoversShape(call));
  call.n_heads = 10;
  EXPECT_FALSE(CoversShape(call));
}

}  // namespace
}  // namespace polykv
