#include <algorithm>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/dummy_weights.h"
#include "common/model/open_model.h"
#include "tests/gpu/group_runner.h"
#include "tests/gpu/test_device.h"
#include "tests/unit/model/rank_comparison.h"

// Deterministic mode with the shapes of large models: 2, 4 and 8 tensor ranks give the bits of one
// GPU.
namespace baton {
namespace {

constexpr size_t kLayers = 3;
constexpr int32_t kVocabulary = 4000;
constexpr int32_t kSequences = 70;

struct Case {
  const char* shape;  // in bench/engine/shapes
  bool fp8_weights;
  DType kv;
};

void PrintTo(const Case& which, std::ostream* out) {
  *out << which.shape << (which.fp8_weights ? " fp8" : " bf16") << ", KV in " << Name(which.kv);
}

class GpuDegrees : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string missing = RankThreads::Missing();
    if (!missing.empty()) GTEST_SKIP() << "groups of GPUs were NOT tested: " << missing;
    spec_ = LoadModelSpec(std::string(BATON_TEST_DATA) + "/../../bench/engine/shapes/" +
                          GetParam().shape)
                .value();
    spec_.layers.resize(kLayers);
    spec_.vocab = kVocabulary;
    model_ = {"degrees", spec_, std::make_unique<DummyWeights>(3)};
    options_ = {.deterministic = true, .fp8_weights = GetParam().fp8_weights};
    runner_options_ = {.kv_dtype = GetParam().kv, .kv_blocks = 2500, .limits = {3000, 80}};
  }

  ModelSpec spec_;
  OpenedModel model_;
  CudaOptions options_;
  RunnerOptions runner_options_;
};

// Prompts of different lengths, a long one in chunks, then rows alone, and in batches of several
// sizes. Returns all logits.
template <class Step>
std::vector<Logits> RunAll(const Step& step) {
  std::vector<Logits> all;
  const auto run = [&](const std::vector<Chunk>& chunks) {
    for (Logits& logits : step(chunks)) all.push_back(std::move(logits));
  };
  std::vector<std::vector<TokenId>> texts = {MakePrompt(4500, 5, kVocabulary)};
  std::vector<Chunk> prompts;
  for (int32_t i = 1; i < kSequences; ++i) {
    texts.push_back(MakePrompt(10 + 7 * i % 61, 5 + i, kVocabulary));
  }
  const std::span<const TokenId> longest(texts[0]);
  run({{0, longest.first(2900), WantLogits::kLast}});
  run({{0, longest.subspan(2900, 1400), WantLogits::kLast}});
  for (int32_t i = 1; i < kSequences; ++i) {
    const std::span<const TokenId> text(texts[static_cast<size_t>(i)]);
    prompts.push_back({i, text.first(text.size() - 5), WantLogits::kLast});
  }
  run(prompts);
  for (size_t decode = 0; decode < 5; ++decode) {
    std::vector<Chunk> batch = {{0, longest.subspan(4300 + decode, 1), WantLogits::kLast}};
    if (decode == 1) run({batch[0]});
    const int32_t sequences = decode < 2 ? 5 : kSequences;
    for (int32_t i = 1; i < sequences; ++i) {
      const std::span<const TokenId> text(texts[static_cast<size_t>(i)]);
      batch.push_back({i, text.subspan(text.size() - 5 + decode, 1), WantLogits::kLast});
    }
    if (decode == 1) batch.erase(batch.begin());
    run(batch);
  }
  return all;
}

TEST_P(GpuDegrees, HaveTheBitsOfOneGpu) {
  std::vector<Logits> want;
  {
    const auto device = cuda::CudaDevice::Open(0).value();
    const auto ops = MakeCudaOps(*device, cuda::TestedOptions(options_)).value();
    const auto alone =
        StepRunner::Create(spec_, *model_.weights, runner_options_, {ops.get(), ReadDevice})
            .value();
    want = RunAll([&](const auto& chunks) { return alone->Step(chunks); });
  }
  for (const int ranks : RankThreads::Sizes()) {
    if (spec_.kv_heads % ranks != 0) continue;
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    GroupRunner group(model_, /*pipeline=*/false, options_, runner_options_, ranks);
    const auto got = RunAll([&](const auto& chunks) { return group.Step(chunks); });
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(SameBits({got[i]}, {want[i]})) << "logits " << i << " of " << got.size();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         GpuDegrees,
                         testing::Values(Case{"llama-3.1-8b", false, DType::kBF16},
                                         Case{"llama-3.1-8b", true, DType::kFp8},
                                         Case{"qwen3-30b-a3b", false, DType::kBF16},
                                         Case{"qwen3-30b-a3b", true, DType::kBF16}));

}  // namespace
}  // namespace baton
