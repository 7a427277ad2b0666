#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/model/dummy_weights.h"
#include "common/model/open_model.h"
#include "kernels/cuda/step/cuda_ops.h"
#include "tests/gpu/read_logits.h"
#include "tests/gpu/test_device.h"
#include "tests/unit/model/rank_comparison.h"
#include "tests/unit/model/step_runner.h"

// The memory that the values of the largest step take.
namespace baton::cuda {
namespace {

constexpr int32_t kRows = 8192;
constexpr int32_t kLogitRows = 256;

struct Case {
  const char* shape;
  bool fp8_weights;
};
void PrintTo(const Case& which, std::ostream* out) {
  *out << which.shape << (which.fp8_weights ? " fp8" : " bf16");
}

class StepMemoryTest : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Shapes,
                         StepMemoryTest,
                         testing::Values(Case{"llama-3.1-8b", false},
                                         Case{"llama-3.1-8b", true},
                                         Case{"qwen3-30b-a3b", false},
                                         Case{"qwen3-30b-a3b", true}));

// A prompt of 8,192 tokens. Layers are alike, so that a few of them need the memory of all.
TEST_P(StepMemoryTest, IsLittleMoreThanWhatOneOpNeeds) {
  auto spec = LoadModelSpec(std::string(BATON_TEST_DATA) + "/../../bench/engine/shapes/" +
                            GetParam().shape);
  ASSERT_TRUE(spec.ok()) << spec.status();
  spec->layers.resize(3);
  const auto device = CudaDevice::Open(0);
  if (!device.ok()) {
    GTEST_SKIP() << "the memory of steps on the GPU was NOT tested: " << device.status();
  }
  if (GetParam().fp8_weights && !CheckFp8Weights(TestedDevice()).ok()) {
    GTEST_SKIP() << "no FP8 on this GPU: the memory of its steps was NOT tested";
  }
  auto ops = CudaOps::Create(**device, TestedOptions({.fp8_weights = GetParam().fp8_weights}));
  ASSERT_TRUE(ops.ok()) << ops.status();
  const DummyWeights weights(3);
  auto runner = StepRunner::Create(
      *spec,
      weights,
      {.kv_dtype = DType::kBF16, .kv_blocks = kRows / 16 + 1, .limits = {kRows, kLogitRows}},
      {ops->get(), ReadDevice});
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto prompt = MakePrompt(kRows, 5, spec->vocab);
  (*runner)->Step(Chunk{0, prompt, WantLogits::kLast});
  const StepMemory& memory = (*ops)->largest_memory();
  std::printf("%s: %zu bytes for %d rows, %zu in use at once\n",
              testing::PrintToString(GetParam()).c_str(),
              memory.bytes,
              kRows,
              memory.in_use);
  EXPECT_LE(memory.bytes, memory.in_use + memory.in_use / 20);
}

}  // namespace
}  // namespace baton::cuda
