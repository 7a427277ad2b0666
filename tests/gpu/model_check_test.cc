#include "kernels/cuda/step/model_check.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

ModelShape Good() {
  ModelShape shape;
  shape.heads = {32, 8, 128};
  shape.hidden = 4096;
  shape.vocabulary = 128256;
  return shape;
}

TEST(ModelCheckTest, TakesWhatItRuns) {
  EXPECT_TRUE(CheckModel(Good()).ok());
  ModelShape experts = Good();
  experts.experts = 512;
  experts.experts_per_token = 32;
  experts.expert_width = 768;
  EXPECT_TRUE(CheckModel(experts).ok());
  experts.vocabulary = 1 << 18;
  EXPECT_TRUE(CheckModel(experts).ok());
}

// CheckModel reports an unsupported shape before the weights are loaded, not in the first step.
TEST(ModelCheckTest, NamesWhatItCannotRun) {
  const std::vector<std::pair<std::function<void(ModelShape&)>, std::string>> cases = {
      {[](ModelShape& s) { s.vocabulary = (1 << 18) + 1; },
       "the vocabulary has 262145 tokens; the CUDA backend samples from up to 262144"},
      {[](ModelShape& s) { s.heads.head_dim = 288; },
       "the head dimension is 288; the CUDA backend needs a multiple of 8 up to 256"},
      {[](ModelShape& s) { s.heads.head_dim = 20; },
       "the head dimension is 20; the CUDA backend needs a multiple of 8 up to 256"},
      {[](ModelShape& s) { s.heads.head_dim = 24, s.fp8_kv = true; },
       "the head dimension is 24; the CUDA backend needs a multiple of 16 up to 256 for a KV cache "
       "of fp8"},
      {[](ModelShape& s) { s.experts = 513, s.experts_per_token = 2, s.expert_width = 8; },
       "the number of experts is 513; the CUDA backend takes up to 512"},
      {[](ModelShape& s) { s.experts = 64, s.experts_per_token = 33, s.expert_width = 8; },
       "the number of experts per token is 33; the CUDA backend takes up to 32"},
      {[](ModelShape& s) { s.experts = 64, s.experts_per_token = 2, s.expert_width = 12; },
       "the hidden size is 4096 and that of an expert 12; the CUDA backend needs multiples of 8 in "
       "a mixture of experts"},
  };
  for (const auto& [spoil, message] : cases) {
    ModelShape shape = Good();
    spoil(shape);
    const Status status = CheckModel(shape);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_EQ(Message(status), message);
  }
}

}  // namespace
}  // namespace baton::cuda
