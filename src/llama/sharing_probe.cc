#include "llama/sharing_probe.h"

#include "llama-cpp.h"

namespace polykv {
namespace {

// libllama logs nothing while it lives.
class QuietLlama {
 public:
  QuietLlama() {
    llama_log_get(&callback_, &user_data_);
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  }
  ~QuietLlama() { llama_log_set(callback_, user_data_); }
  QuietLlama(const QuietLlama&) = delete;
  QuietLlama& operator=(const QuietLlama&) = delete;

 private:
  ggml_log_callback callback_ = nullptr;
  void* user_data_ = nullptr;
};

}  // namespace

Sharing SharingOf(const llama_model* model, bool swa_full) {
  if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model)) return Sharing::kAtTip;
  return llama_model_n_swa(model) > 0 && !swa_full ? Sharing::kWindow : Sharing::kAnyPosition;
}

Sharing ReadSharing(common_params params) {
  const QuietLlama quiet;
  llama_model_params model_params = common_model_params_to_llama(params);
  model_params.no_alloc = true;
  model_params.load_mode = LLAMA_LOAD_MODE_NONE;
  const llama_model_ptr model(llama_model_load_from_file(params.model.path.c_str(), model_params));
  return model != nullptr ? SharingOf(model.get(), params.swa_full) : Sharing::kAnyPosition;
}

}  // namespace polykv
