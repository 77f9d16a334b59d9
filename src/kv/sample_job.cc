#include <exception>

#include "kv/model_backend.h"

namespace polykv {

void SampleJob::Run() {
  try {
    sampled = sampler->SampleAlong(output_index, draft);
  } catch (const std::exception& error) {
    fault = error.what();
  }
}

}  // namespace polykv
