#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/attention_harness.h"
#include "tests/gpu/test_device.h"

// Sinks and caps of logits in each kernel that has them (AttentionArgs::sinks and cap), beside
// windows.
namespace baton::cuda::testing {
namespace {

// Tolerance of bf16 results, for the rounding of the probabilities and of the result.
constexpr double kTolerance = 0.02;

struct Form {
  std::string name;
  bool sinks = false;
  float cap = 0;
  int32_t window = 0;
};
// Most logits are beyond half of the cap.
const std::vector<Form> kForms = {{"sinks", true, 0, 0},
                                  {"cap", false, 0.5f, 0},
                                  {"both", true, 0.5f, 0},
                                  {"sinks_window", true, 0, 128},
                                  {"cap_window", false, 0.5f, 100},
                                  {"both_window", true, 0.5f, 77}};

const Lengths kSingles = {{0, 1},
                          {1, 1},
                          {15, 1},
                          {16, 1},
                          {127, 1},
                          {128, 1},
                          {129, 1},
                          {999, 1},
                          {1024, 1},
                          {2047, 1},
                          {4999, 1}};
const Lengths kMixed = {{0, 1},
                        {0, 17},
                        {700, 1},
                        {0, 300},
                        {130, 200},
                        {5, 1},
                        {1000, 2},
                        {0, 129},
                        {333, 5},
                        {2000, 130}};

struct Heads {
  int32_t q, kv, dim;
};

const AttentionOptions kDeterministic = {true, DecodeKernel::kAuto};
const AttentionOptions kFlash2 = {false, DecodeKernel::kFlash2};
const AttentionOptions kCluster = {false, DecodeKernel::kCluster};

class AttentionFormsTest : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "no GPU of sm_80 or newer: attention was NOT tested";
  }

  static FixtureShape Shape(const Heads& heads) {
    FixtureShape fixture;
    fixture.shape.q_heads = heads.q;
    fixture.shape.kv_heads = heads.kv;
    fixture.shape.head_dim = heads.dim;
    fixture.shape.scale = 1.5f / std::sqrt(static_cast<float>(heads.dim));
    fixture.shape.has_sinks = GetParam().sinks;
    fixture.shape.cap = GetParam().cap;
    fixture.shape.window = GetParam().window;
    return fixture;
  }

  // Runs a step and compares every row.
  static AttentionPlan Run(FixtureShape shape,
                           const Lengths& lengths,
                           const AttentionOptions& options = {}) {
    shape.tokens = TokensOf(lengths);
    Fixture fixture(shape, options);
    fixture.Begin(lengths, 0);
    AttentionPlan plan = fixture.Plan();
    EXPECT_EQ(plan.portable.work_tiles, 0);
    fixture.Launch(plan, shape.layers - 1);
    EXPECT_LT(fixture.Error(shape.layers - 1), kTolerance);
    return plan;
  }
};

TEST_P(AttentionFormsTest, DecodesInTiles) {
  for (const Heads& heads : {Heads{64, 8, 64}, {32, 8, 128}, {9, 1, 128}, {8, 4, 256}}) {
    SCOPED_TRACE(::testing::Message() << heads.q << " over " << heads.kv << " of " << heads.dim);
    for (const DType dtype : {DType::kBF16, DType::kFp8}) {
      if (dtype == DType::kFp8 && !IsHopper()) continue;
      SCOPED_TRACE(Name(dtype));
      FixtureShape shape = Shape(heads);
      shape.kv_dtype = dtype;
      EXPECT_GT(Run(shape, kSingles, kFlash2).rows.work_tiles, 0);
      // Contexts are split, then whole.
      EXPECT_EQ(Run(shape, {{9000, 1}}, kFlash2).rows.combine.rows > 0, GetParam().window == 0);
      EXPECT_EQ(Run(shape, Lengths(64, {200, 1}), kFlash2).rows.combine.rows, 0);
    }
  }
}

TEST_P(AttentionFormsTest, DecodesInClusters) {
  if (!IsHopper()) GTEST_SKIP() << "clusters need sm_90";
  for (const DType dtype : {DType::kBF16, DType::kFp8}) {
    for (const int32_t dim : {64, 128}) {
      for (const int32_t group : {1, 2, 7, 8}) {
        SCOPED_TRACE(::testing::Message()
                     << "groups of " << group << ", heads of " << dim << ", " << Name(dtype));
        FixtureShape shape = Shape({2 * group, 2, dim});
        shape.kv_dtype = dtype;
        EXPECT_GT(Run(shape, kSingles, kCluster).cluster.rows, 0);
        for (const int32_t context : {0, 16, 128, 2047, 40001}) {
          EXPECT_EQ(Run(shape, {{context, 1}}, kCluster).cluster.rows, 1) << context;
        }
        EXPECT_GT(Run(shape, Lengths(200, {300, 1}), kCluster).cluster.rows, 0);
      }
    }
  }
}

TEST_P(AttentionFormsTest, ComputesChunks) {
  for (const Heads& heads : {Heads{64, 8, 64}, {32, 8, 128}, {16, 4, 256}, {6, 2, 128}}) {
    SCOPED_TRACE(::testing::Message() << heads.q << " over " << heads.kv << " of " << heads.dim);
    const FixtureShape shape = Shape(heads);
    for (const AttentionOptions& options : {AttentionOptions(), kDeterministic}) {
      SCOPED_TRACE(options.deterministic);
      const AttentionPlan plan = Run(shape, {{0, 2048}}, options);
      if (heads.q >= 16) {
        EXPECT_EQ(!plan.ragged.empty(), IsHopper() && GetParam().window == 0);
      }
      Run(shape, {{6144, 300}, {0, 193}, {777, 333}}, options);
      Run(shape, kMixed, options);
      Run(shape, {{30000, 5}}, options);
    }
  }
}

TEST_P(AttentionFormsTest, ComputesChunksOfFp8) {
  if (!IsHopper()) GTEST_SKIP() << "E4M3 needs sm_89";
  for (const Heads& heads : {Heads{64, 8, 64}, {8, 4, 128}, {8, 4, 256}}) {
    SCOPED_TRACE(::testing::Message() << heads.q << " over " << heads.kv << " of " << heads.dim);
    FixtureShape shape = Shape(heads);
    shape.kv_dtype = DType::kFp8;
    Run(shape, {{0, 700}, {1300, 200}, {90, 1}}, kDeterministic);
  }
}

// In deterministic mode a row has the same bits alone, in a batch, and in chunks.
TEST_P(AttentionFormsTest, RowsDoNotDependOnTheBatch) {
  for (const Heads& heads :
       {Heads{32, 4, 64}, {16, 4, 128}, {18, 2, 128}, {16, 4, 256}, {16, 4, 80}}) {
    SCOPED_TRACE(::testing::Message() << heads.q << " over " << heads.kv << " of " << heads.dim);
    FixtureShape shape = Shape(heads);
    shape.tokens = 40000;
    Fixture fixture(shape, kDeterministic);
    const auto run = [&](const Lengths& lengths, const std::vector<int32_t>& numbers) {
      fixture.Begin(lengths, 0, numbers);
      fixture.Launch(fixture.Plan(), shape.layers - 1);
      return fixture.Rows(0, lengths[0].second);
    };
    for (const int32_t context : {0, 100, 1023, 5000}) {
      const auto alone = run({{context, 1}}, {9});
      EXPECT_EQ(alone, run({{context, 1}, {3000, 1}, {17, 1}}, {9, 1, 2})) << context;
      EXPECT_EQ(alone, run({{context, 1}, {0, 900}}, {9, 4})) << context;
    }
    const auto whole = run({{0, 1500}}, {9});
    std::vector<uint16_t> parts;
    for (const auto& [first, count] : Lengths{{0, 700}, {700, 2}, {702, 798}}) {
      const auto part = run({{first, count}, {50, 1}, {10, 300}}, {9, 1, 2});
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, parts);
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         AttentionFormsTest,
                         ::testing::ValuesIn(kForms),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace baton::cuda::testing
