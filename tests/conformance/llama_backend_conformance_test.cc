#include "conformance/backend_conformance.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"

namespace polykv {
namespace {

class LlamaSubject final : public ConformanceSubject {
 public:
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
    return ReadRealCells(*backend_).positions[seq];
  }

 private:
  // Micro-batches much smaller than a batch, so that a Decode can fail halfway if at all.
  std::unique_ptr<LlamaBackend> backend_ =
      LoadTestModel({.n_ctx = 256,
                     .n_parallel = 4,
                     .n_seq_max = 16,
                     .n_batch = 256,
                     .n_ubatch = 32,
                     .embedding = true,
                     .drafts = TestModelOptions::Drafts::kFromText});
};

std::unique_ptr<ConformanceSubject> MakeLlamaSubject() { return std::make_unique<LlamaSubject>(); }

INSTANTIATE_TEST_SUITE_P(Llama, BackendConformanceTest, testing::Values(&MakeLlamaSubject));

}  // namespace
}  // namespace polykv
