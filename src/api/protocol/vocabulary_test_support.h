// The vocabulary of the model in $POLYKV_TEST_MODEL, and its chat template.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "llama-cpp.h"

namespace polykv {

class VocabularyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("POLYKV_TEST_MODEL");
    ASSERT_NE(path, nullptr) << "set POLYKV_TEST_MODEL to a GGUF file";
    llama_model_params model_params = llama_model_default_params();
    model_params.vocab_only = true;
    vocabulary_.reset(llama_model_load_from_file(path, model_params));
    ASSERT_NE(vocabulary_, nullptr);
  }

  llama_model_ptr vocabulary_;
};

}  // namespace polykv
