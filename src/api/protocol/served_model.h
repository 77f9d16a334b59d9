// What the wire protocol needs to know of the loaded model: chat template, vocabulary, defaults of
// the command line. llama.cpp's own types stay behind State, which only this folder looks into.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "kv/model_backend.h"

struct common_params;
struct common_params_sampling;
struct llama_model;

namespace polykv {

// Makes the sampling state of one stream; called on HTTP workers, at the same time too.
// Throws std::exception if the parameters make no sampler.
using SamplerFactory = std::function<std::unique_ptr<Sampler>(const common_params_sampling&,
                                                              bool post_sampling_probs)>;

struct ServedModelConfig {
  const common_params* params = nullptr;  // as llama-server would have them after loading; outlives
  const llama_model* model = nullptr;     // outlives
  int32_t n_ctx_plain = 0;                // context of a request without pool and session
  int32_t max_generations = 0;            // most generations that one HTTP request may ask for
  bool pooled_vectors = false;            // ModelInfo::pooled
  SamplerFactory make_sampler;
};

// Constant after Make; any thread.
class ServedModel {
 public:
  struct State;

  // A Problem (one line) if the chat template is unusable.
  static Result<std::unique_ptr<ServedModel>> Make(ServedModelConfig config);
  ~ServedModel();

  // Bodies as llama-server writes them. `polykv` is a JSON object: GET /props shows it as
  // opencoti.polykv.
  std::string PropsBody(const std::string& polykv, bool is_sleeping) const;
  std::string ModelsBody(int64_t unix_s) const;  // `unix_s`: now

  const std::string& slot_save_path() const;  // with a separator at its end; empty: not given
  bool endpoint_slots() const;
  bool endpoint_metrics() const;
  bool endpoint_props() const;  // POST /props

  const State& state() const { return *state_; }

 private:
  explicit ServedModel(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace polykv
