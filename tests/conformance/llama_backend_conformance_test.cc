#include "conformance/backend_conformance.h"
#include "conformance/sharing_conformance.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"

namespace polykv {
namespace {

class LlamaSubject final : public ConformanceSubject {
 public:
  explicit LlamaSubject(const TestModelOptions& options) : backend_(LoadTestModel(options)) {}
  ModelBackend& backend() override { return *backend_; }
  std::unique_ptr<Sampler> MakeGreedySampler() override {
    return polykv::MakeGreedySampler(*backend_);
  }
  int32_t CellsUsed() const override {
    const RealCells cells = ReadRealCells(*backend_);
    EXPECT_EQ(cells.ownerless, 0);
    return cells.used;
  }
  std::vector<Pos> Positions(SeqId seq) const override {
    RealCells cells = ReadRealCells(*backend_);
    const auto tip = cells.tips.find(seq);
    if (cells.positions.empty() && tip != cells.tips.end()) return PositionsUpTo(tip->second + 1);
    return cells.positions[seq];
  }

 private:
  std::unique_ptr<LlamaBackend> backend_;
};

// Micro-batches much smaller than a batch, so that a Decode can fail halfway if at all.
std::unique_ptr<ConformanceSubject> MakeLlamaSubject() {
  return std::make_unique<LlamaSubject>(
      TestModelOptions{.n_ctx = 256,
                       .n_parallel = 4,
                       .n_seq_max = 16,
                       .n_batch = 256,
                       .n_ubatch = 32,
                       .embedding = true,
                       .drafts = TestModelOptions::Drafts::kFromText});
}

INSTANTIATE_TEST_SUITE_P(Llama, BackendConformanceTest, testing::Values(&MakeLlamaSubject));

// A window of a sequence and a micro-batch fill the cells for windows, so that they are soon taken.
TestModelOptions SharingOptions(bool unified) {
  return {.n_ctx = unified ? 1024 : 6 * 256,
          .n_parallel = 6,
          .n_seq_max = 6,
          .n_batch = 256,
          .n_ubatch = 32,
          .unified = unified};
}

// A window that is kept whole, and drafts, whose memory is shared along.
template <bool kUnified>
std::unique_ptr<ConformanceSubject> MakePlain() {
  TestModelOptions options = SharingOptions(kUnified);
  options.path = TinyModelPath("gemma3");
  options.swa_full = true;
  options.drafts = TestModelOptions::Drafts::kFromModel;
  return std::make_unique<LlamaSubject>(options);
}

constexpr char kGemma3[] = "gemma3";
constexpr char kMamba[] = "mamba";
constexpr char kJamba[] = "jamba";
constexpr char kLfm2[] = "lfm2";

template <const char* kArchitecture, bool kUnified>
std::unique_ptr<ConformanceSubject> MakeTiny() {
  TestModelOptions options = SharingOptions(kUnified);
  options.path = TinyModelPath(kArchitecture);
  return std::make_unique<LlamaSubject>(options);
}

INSTANTIATE_TEST_SUITE_P(LlamaUnified, SharingConformanceTest,
                         testing::Values(&MakePlain<true>, &MakeTiny<kGemma3, true>,
                                         &MakeTiny<kMamba, true>, &MakeTiny<kJamba, true>,
                                         &MakeTiny<kLfm2, true>));
INSTANTIATE_TEST_SUITE_P(LlamaSplit, SharingConformanceTest,
                         testing::Values(&MakePlain<false>, &MakeTiny<kGemma3, false>,
                                         &MakeTiny<kMamba, false>, &MakeTiny<kJamba, false>,
                                         &MakeTiny<kLfm2, false>));

}  // namespace
}  // namespace polykv
