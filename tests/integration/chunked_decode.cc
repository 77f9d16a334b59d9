#include "integration/chunked_decode.h"

#include "gtest/gtest.h"

namespace polykv {

Answers DecodeInChunks(LlamaBackend& backend, SeqId seq, std::span<const Token> tokens, Pos pos,
                       size_t chunk, size_t n_answers) {
  Answers answers;
  StepBatch batch;
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.push_back(
        {.token = tokens[i], .pos = pos++, .seq = seq, .output = i + n_answers >= tokens.size()});
    if (batch.size() < chunk && i + 1 < tokens.size()) continue;
    EXPECT_EQ(backend.Decode(batch), DecodeStatus::kOk);
    for (size_t j = 0; j < batch.size(); ++j) {
      if (!batch[j].output) continue;
      answers.push_back(LogSoftmax(backend.Logits(static_cast<int32_t>(j))));
    }
    batch.clear();
  }
  return answers;
}

}  // namespace polykv
