#include "kernels/cuda/table/model_check.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
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

DeviceProperties Card(int32_t architecture) {
  DeviceProperties device;
  device.architecture = device.code_architecture = architecture;
  device.sm_count = 108;
  device.block_shared_bytes = (architecture == 90 ? 227 : 99) << 10;
  return device;
}

TEST(ModelCheckTest, TakesWhatItRuns) {
  for (const int32_t architecture : {80, 86, 89, 90, 100, 120}) {
    for (const bool deterministic : {false, true}) {
      const auto check = [&](const ModelShape& shape) {
        return CheckModel(shape, Card(architecture), deterministic);
      };
      EXPECT_TRUE(check(Good()).ok());
      ModelShape experts = Good();
      experts.experts = 512;
      experts.experts_per_token = 32;
      experts.expert_width = 768;
      EXPECT_TRUE(check(experts).ok());
      experts.vocabulary = 1 << 19;
      EXPECT_TRUE(check(experts).ok());
    }
  }
}

// CheckModel reports an unsupported shape before the weights are loaded, not in the first step.
TEST(ModelCheckTest, NamesTheOpTheCardAndWhatIsNearest) {
  const std::vector<std::pair<std::function<void(ModelShape&)>, std::string>> cases = {
      {[](ModelShape& s) { s.vocabulary = (1 << 19) + 1; },
       "no kernel computes the sampling of f32 on sm_86; the nearest are sampling: tokens of the "
       "vocabulary ≤ 524288 is false (tokens of the vocabulary 524289)"},
      {[](ModelShape& s) { s.heads.head_dim = 288; },
       "no kernel computes the attention of a few rows of bf16 on sm_86; the nearest are "
       "attention/portable: head size ≤ 256 is false (head size 288); "},
      {[](ModelShape& s) { s.heads.head_dim = 20; },
       "attention/portable: head size a multiple of 8 is false (head size 20)"},
      {[](ModelShape& s) { s.heads.head_dim = 24, s.fp8_kv = true; },
       "attention/portable: bytes of a KV number ≥ 2 or head size a multiple of 16 is false (bytes "
       "of a KV number 1, head size 24); attention/flash2, tiles of 16 rows: head size = 64 or "
       "head size = 128 or head size = 256 is false (head size 24); in bf16 one does"},
      {[](ModelShape& s) { s.experts = 513, s.experts_per_token = 2, s.expert_width = 8; },
       "experts/grouped_gemm: experts ≤ 512 is false (experts 513)"},
      {[](ModelShape& s) { s.experts = 64, s.experts_per_token = 33, s.expert_width = 8; },
       "experts/grouped_gemm: experts of a row ≤ 32 is false (experts of a row 33)"},
      {[](ModelShape& s) { s.experts = 64, s.experts_per_token = 2, s.expert_width = 12; },
       "no kernel computes the GEMMs of experts of bf16 on sm_86; the nearest are "
       "experts/grouped_gemm: common divisor of hidden size and expert width a multiple of 8 is "
       "false (common divisor of hidden size and expert width 4)"},
  };
  for (const auto& [spoil, message] : cases) {
    ModelShape shape = Good();
    spoil(shape);
    const Status status = CheckModel(shape, Card(86), false);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(Message(status)), testing::HasSubstr(message));
  }
}

TEST(ModelCheckTest, NamesTheVariantsOfOpsThatItDoesNotHave) {
  ModelShape shape = Good();
  shape.variants = {OpVariant::kLayerNorm, OpVariant::kActivation, OpVariant::kSoftCap};
  EXPECT_TRUE(CheckModel(shape, Card(90), false).ok());
  shape.variants.push_back(OpVariant::kDeltaNet);
  EXPECT_TRUE(CheckModel(shape, Card(90), false).ok());
  shape.variants.push_back(OpVariant::kSparseAttention);
  const Status status = CheckModel(shape, Card(90), false);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Message(status),
            "the CUDA backend does not have what the model needs: attention to selected tokens; "
            "the CPU backend does (engine.device: cpu)");
}

// Attention to latents has other bounds than that to heads, whose size is 192 here.
TEST(ModelCheckTest, LatentsAreCheckedAsLatents) {
  ModelShape shape = Good();
  shape.heads = {128, 128, 192};
  shape.latent = {.heads = 128, .rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  shape.variants = {OpVariant::kLatentAttention};
  EXPECT_TRUE(CheckModel(shape, Card(86), false).ok());
  shape.fp8_kv = true;
  EXPECT_THAT(std::string(Message(CheckModel(shape, Card(90), false))),
              testing::HasSubstr("no kernel computes the attention to latents of fp8 on sm_90"));
  shape.fp8_kv = false;
  shape.latent.heads = 257;
  EXPECT_THAT(std::string(Message(CheckModel(shape, Card(90), false))),
              testing::HasSubstr("latent/head_gemm: heads ≤ 256 is false (heads 257)"));
}

TEST(ModelCheckTest, ACardWithoutAnyKernelIsRefused) {
  EXPECT_THAT(std::string(Message(CheckModel(Good(), Card(75), false))),
              testing::HasSubstr("no kernel computes the GEMM of bf16 on sm_75; the nearest are "
                                 "gemm/portable: needs sm_80 or newer, and this is sm_75"));
}

}  // namespace
}  // namespace baton::cuda
