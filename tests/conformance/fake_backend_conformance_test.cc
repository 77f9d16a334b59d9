#include "conformance/backend_conformance.h"
#include "kv/fake_backend.h"

namespace polykv {
namespace {

class FakeSubject final : public ConformanceSubject {
 public:
  ModelBackend& backend() override { return backend_; }
  std::unique_ptr<Sampler> MakeGreedySampler() override { return backend_.MakeSampler(); }
  int32_t CellsUsed() const override { return backend_.CellsUsed(); }
  std::vector<Pos> Positions(SeqId seq) const override { return backend_.Positions(seq); }

 private:
  FakeBackend backend_{
      {.n_ctx = 256, .n_seq_max = 12, .n_batch = 256, .n_ubatch = 32, .n_draft = 4}};
};

std::unique_ptr<ConformanceSubject> MakeFakeSubject() { return std::make_unique<FakeSubject>(); }

INSTANTIATE_TEST_SUITE_P(Fake, BackendConformanceTest, testing::Values(&MakeFakeSubject));

}  // namespace
}  // namespace polykv
