// What ResponseWriter must know of a request, for this folder only.
#pragma once

#include <string>
#include <vector>

#include "api/protocol/response_writer.h"
#include "llama.h"
#include "server-task.h"

namespace polykv {

struct ResponseWriter::Plan {
  struct Generation {
    task_params params;
    int32_t n_prompt_tokens = 0;
    std::string prompt_text;  // only where the response repeats the prompt
  };
  std::vector<Generation> generations;  // in request order
  const llama_vocab* vocab = nullptr;
  bool with_attach_block = false;
};

}  // namespace polykv
