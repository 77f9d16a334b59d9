#include "conformance/backend_conformance.h"
#include "conformance/sharing_conformance.h"
#include "kv/fake_backend.h"

namespace polykv {
namespace {

class FakeSubject final : public ConformanceSubject {
 public:
  explicit FakeSubject(const FakeBackendOptions& options) : backend_(options) {}
  ModelBackend& backend() override { return backend_; }
  std::unique_ptr<Sampler> MakeGreedySampler() override { return backend_.MakeSampler(); }
  int32_t CellsUsed() const override { return backend_.CellsUsed(); }
  std::vector<Pos> Positions(SeqId seq) const override { return backend_.Positions(seq); }

 private:
  FakeBackend backend_;
};

std::unique_ptr<ConformanceSubject> MakeFakeSubject() {
  return std::make_unique<FakeSubject>(FakeBackendOptions{
      .n_ctx = 256, .n_seq_max = 12, .n_batch = 256, .n_ubatch = 32, .n_draft = 4});
}

INSTANTIATE_TEST_SUITE_P(Fake, BackendConformanceTest, testing::Values(&MakeFakeSubject));

template <bool kUnified, int32_t kWindow, bool kRecurrent>
std::unique_ptr<ConformanceSubject> MakeSharing() {
  return std::make_unique<FakeSubject>(FakeBackendOptions{.n_ctx = 2048,
                                                          .n_seq_max = 8,
                                                          .unified = kUnified,
                                                          .n_swa = kWindow,
                                                          .recurrent = kRecurrent});
}

INSTANTIATE_TEST_SUITE_P(FakeUnified, SharingConformanceTest,
                         testing::Values(&MakeSharing<true, 0, false>,
                                         &MakeSharing<true, 48, false>,
                                         &MakeSharing<true, 0, true>));
INSTANTIATE_TEST_SUITE_P(FakeSplit, SharingConformanceTest,
                         testing::Values(&MakeSharing<false, 0, false>,
                                         &MakeSharing<false, 48, false>,
                                         &MakeSharing<false, 0, true>));

}  // namespace
}  // namespace polykv
