#include "common/kernel_report/kernel_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/kernel_report/device_choice.h"
#include "common/model/open_model.h"

namespace baton {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

ModelSpec Llama() {
  ModelSpec spec;
  spec.hidden = 4096;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.intermediate = 14336;
  spec.vocab = 128256;
  spec.context_length = 8192;
  spec.rope.rotary_dim = 128;
  spec.layers.resize(4);
  return spec;
}

cuda::DecodeLimits Typical(std::string_view architecture, bool portable = false) {
  return TypicalGpu(architecture, portable)->limits;
}

std::vector<std::string> OpsOf(const std::vector<KernelUse>& uses) {
  std::vector<std::string> ops;
  for (const KernelUse& use : uses) {
    if (ops.empty() || ops.back() != use.op) ops.push_back(use.op);
  }
  return ops;
}

TEST(KernelReportTest, HasEachOpOfTheGraphOnceAndAllRows) {
  const auto uses = ReportKernels(Llama(), Typical("sm_90"), {.max_rows = 1000});
  EXPECT_THAT(OpsOf(uses),
              ElementsAre("GEMM of qkv, 6144 × 4096",
                          "attention, decoding rows of 2048 positions, 32 heads over 8 of 128",
                          "attention, rows of one prompt chunk, 32 heads over 8 of 128",
                          "GEMM of delta, 4096 × 4096",
                          "gated GEMM of feed_forward, 28672 × 4096",
                          "GEMM of delta, 4096 × 14336",
                          "GEMM of logits, 128256 × 4096"));
  for (size_t i = 0; i < uses.size(); ++i) {
    const bool first = i == 0 || uses[i - 1].op != uses[i].op;
    EXPECT_EQ(uses[i].first_row, first ? 1 : uses[i - 1].last_row + 1);
    EXPECT_FALSE(uses[i].kernel.empty());
    EXPECT_FALSE(uses[i].why.empty());
    const bool last = i + 1 == uses.size() || uses[i + 1].op != uses[i].op;
    EXPECT_TRUE(!last || uses[i].last_row == 1000) << uses[i].op;
  }
}

// The kernel that computes the first op whose description begins with `op`.
std::string KernelOf(const std::vector<KernelUse>& uses, std::string_view op) {
  const auto found =
      std::ranges::find_if(uses, [&](const KernelUse& use) { return use.op.starts_with(op); });
  return found == uses.end() ? "no such op" : found->kernel;
}

TEST(KernelReportTest, HasTheOpsOfLatentsAndOfStates) {
  const auto report = [](const std::string& family) {
    const auto spec = LoadModelSpec(std::string(BATON_TEST_DATA) + "/tiny/" + family);
    return ReportKernels(*spec, Typical("sm_80"), {.max_rows = 4});
  };
  const auto latents = report("deepseek_v3");
  EXPECT_EQ(KernelOf(latents, "attention to latents of 32 + 8, 4 heads"),
            "attention/portable, latents");
  EXPECT_EQ(KernelOf(latents, "GEMMs of 4 heads, 32 × 24 and 16 × 32"), "latent/head_gemm");
  EXPECT_EQ(KernelOf(report("qwen3_next"), "recurrent layer of 4 heads, 16 × 16"),
            "recurrent/update_states");
  EXPECT_EQ(KernelOf(report("qwen3_next"), "decoding rows of a recurrent layer of 4 heads"),
            "recurrent/update_states");
  EXPECT_EQ(KernelOf(report("jamba"), "recurrent layer of "), "recurrent/scan");
}

TEST(KernelReportTest, SaysWhyAndWhatWasRefused) {
  const auto uses = ReportKernels(Llama(), Typical("sm_80"), {.max_rows = 300});
  const KernelUse& gate_up =
      *std::ranges::find_if(uses, [](const KernelUse& use) { return use.op.starts_with("gated"); });
  EXPECT_EQ(gate_up.kernel, "cuBLASLt");
  EXPECT_EQ(gate_up.others, "silu · up");
  const nlohmann::json json = ToJson(gate_up);
  EXPECT_EQ(json["rows"], (nlohmann::json{1, 300}));
  EXPECT_EQ(json["refused"][0]["kernel"], "gemm/gemv");
  EXPECT_EQ(json["refused"][0]["reason"], "needs sm_90a, and this is sm_80");
}

// The first and the last MLP, and attention's first two outputs, stay in bf16.
TEST(KernelReportTest, KnowsWhichWeightsStayInBf16) {
  const auto uses = ReportKernels(Llama(), Typical("sm_90"), {.fp8_weights = true, .max_rows = 8});
  std::vector<std::string> types;
  for (const KernelUse& use : uses) {
    if (use.op.ends_with("14336")) types.push_back(use.types);
  }
  EXPECT_THAT(types, ElementsAre("bf16", "bf16", "fp8", "fp8"));  // 1 row, and more
}

TEST(KernelReportTest, AnOpWithoutAKernelHasNone) {
  const auto uses = ReportKernels(Llama(), Typical("sm_86"), {.fp8_weights = true, .max_rows = 8});
  EXPECT_EQ(uses.front().kernel, "");
  EXPECT_THAT(uses.front().refused,
              Contains(Pair("cuBLASLt, FP8 with scales", "needs sm_90a, and this is sm_86")));
}

TEST(KernelReportTest, AnArchitectureOfNoCardNamesThoseThatThereAre) {
  EXPECT_THAT(std::string(Message(TypicalGpu("sm_75", false).status())),
              HasSubstr("'sm_75'; it must be one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"));
}

TEST(KernelReportTest, TheCpuHasOneInstructionSet) {
  const KernelUse use = ReportCpuKernels(CpuIsa::kPortable, 64);
  EXPECT_EQ(use.kernel, "cpu/kernels_portable");
  EXPECT_EQ(use.refused.size(), std::size(kCpuIsas) - 1);
}

}  // namespace
}  // namespace baton
