#include "common/model/dummy_groups.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/model/open_model.h"
#include "kernels/dequantize.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

class DummyGroupsTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return std::string(BATON_TEST_DATA) + "/tiny/" + GetParam(); }
};

// The weights of a GEMM whose outputs are about as large as its inputs.
TEST_P(DummyGroupsTest, HaveTheSizeOfOtherDummyWeights) {
  const auto config = ReadQuantizationOf(path());
  ASSERT_TRUE(config.ok()) << config.status();
  const DummyGroups groups(*config, 5);
  constexpr int64_t kCols = 512;
  const HostMatrix matrix = groups.Matrix(64, kCols);
  ASSERT_TRUE(matrix.has_groups());
  double squares = 0;
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    DequantizeRow(matrix, r, row);
    for (const float weight : row) {
      ASSERT_TRUE(std::isfinite(weight));
      squares += double{weight} * weight;
    }
  }
  const double size = std::sqrt(squares / (64.0 * kCols)) * std::sqrt(double{kCols});
  EXPECT_GT(size, 0.6);
  EXPECT_LT(size, 1.5);
}

TEST_P(DummyGroupsTest, AreTheWeightsOfTheLayersAlone) {
  const auto model = OpenModel(path(), {.format = LoadFormat::kDummy});
  ASSERT_TRUE(model.ok()) << model.status();
  const bool mxfp4 = std::string(GetParam()) == "gpt_oss_mxfp4";
  const auto has_groups = [&](WeightKind kind, int32_t expert) {
    const auto matrix = model->weights->GetMatrix({kind, 0, expert}, 128, 128, {});
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return matrix.ok() && matrix->has_groups();
  };
  EXPECT_EQ(has_groups(WeightKind::kQuery, -1), !mxfp4);
  EXPECT_TRUE(has_groups(WeightKind::kExpertDown, 0));
  EXPECT_FALSE(has_groups(WeightKind::kHead, -1));
  EXPECT_FALSE(has_groups(WeightKind::kRouter, -1));
}

// The whole model computes logits from them.
TEST_P(DummyGroupsTest, ServeAModel) {
  const auto model = OpenModel(path(), {.format = LoadFormat::kDummy});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto runner = StepRunner::Create(model->spec, *model->weights);
  EXPECT_TRUE(runner.ok()) << runner.status();
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         DummyGroupsTest,
                         ::testing::Values("llama_gptq_int4",
                                           "llama_gptq_int8",
                                           "llama_ct_nvfp4",
                                           "llama_ct_fp8_dynamic",
                                           "qwen3_moe_fp8_block",
                                           "gpt_oss_mxfp4"));

}  // namespace
}  // namespace baton
