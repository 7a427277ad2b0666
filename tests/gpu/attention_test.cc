#include "kernels/cuda/attention/attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dequantize.h"
#include "tests/gpu/attention_harness.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda::testing {
namespace {

// Tolerance of bf16 results, for the rounding of the probabilities and of the result.
constexpr double kTolerance = 0.02;

FixtureShape Shape(int32_t q_heads, int32_t kv_heads, int32_t head_dim, int32_t tokens) {
  FixtureShape fixture;
  fixture.shape.q_heads = q_heads;
  fixture.shape.kv_heads = kv_heads;
  fixture.shape.head_dim = head_dim;
  fixture.shape.scale = 1.5f / std::sqrt(static_cast<float>(head_dim));
  fixture.tokens = tokens;
  return fixture;
}

class AttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "no GPU of sm_80 or newer: attention was NOT tested";
  }

  // Runs a step and compares every row.
  AttentionPlan Run(FixtureShape shape,
                    const Lengths& lengths,
                    const AttentionOptions& options = {}) {
    shape.tokens = TokensOf(lengths);
    Fixture fixture(shape, options);
    fixture.Begin(lengths, 0);
    AttentionPlan plan = fixture.Plan();
    fixture.Launch(plan, shape.layers - 1);
    EXPECT_LT(fixture.Error(shape.layers - 1), kTolerance);
    return plan;
  }
};

const Lengths kOddLengths = {{0, 1},
                             {1, 1},
                             {14, 1},
                             {15, 1},
                             {16, 1},
                             {126, 1},
                             {127, 1},
                             {128, 1},
                             {254, 1},
                             {999, 1},
                             {1023, 1},
                             {1024, 1},
                             {2046, 1},
                             {2047, 1},
                             {2048, 1},
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
                        {64, 1},
                        {2000, 130}};

Lengths Ragged(int32_t rows) {
  Lengths lengths;
  for (int32_t i = 0; i < rows; ++i) lengths.emplace_back(128 + 61 * i, 1);
  return lengths;
}

Lengths OneLong() {
  Lengths lengths(40, {10, 1});
  lengths[7] = {60000, 1};
  return lengths;
}

struct Heads {
  int32_t q, kv, dim;
};

const AttentionOptions kDeterministic = {true, DecodeKernel::kAuto};
const AttentionOptions kFlash2 = {false, DecodeKernel::kFlash2};
const AttentionOptions kCluster = {false, DecodeKernel::kCluster};
const AttentionOptions kStreamK = {false, DecodeKernel::kStreamK};

TEST_F(AttentionTest, DecodesOddLengths) {
  for (const Heads& h : {Heads{8, 8, 64},
                         {32, 8, 64},
                         {9, 3, 64},
                         {32, 8, 128},
                         {24, 8, 128},
                         {8, 1, 128},
                         {32, 1, 128},
                         {40, 2, 128},
                         {8, 4, 256},
                         {16, 2, 256}}) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads of " << h.dim);
    const AttentionPlan plan = Run(Shape(h.q, h.kv, h.dim, 0), kOddLengths, kFlash2);
    EXPECT_GT(plan.rows.work_tiles, 0);
  }
}

TEST_F(AttentionTest, DecodesInClusters) {
  if (!IsHopper()) GTEST_SKIP() << "clusters need sm_90";
  for (const int32_t dim : {64, 128}) {
    for (const int32_t group : {1, 2, 3, 4, 5, 7, 8}) {
      SCOPED_TRACE(::testing::Message() << "groups of " << group << ", heads of " << dim);
      FixtureShape shape = Shape(2 * group, 2, dim, 0);
      EXPECT_EQ(Run(shape, kOddLengths, kCluster).cluster.rows, 16);
      for (const int32_t context : {0, 15, 16, 127, 128, 300, 1023, 2047, 5000, 40001}) {
        SCOPED_TRACE(context);
        EXPECT_EQ(Run(shape, {{context, 1}}, kCluster).cluster.rows, 1);
      }
      shape.shape.window = 333;
      Run(shape, kOddLengths, kCluster);
      Run(shape, {{4000, 1}}, kCluster);
    }
  }
  FixtureShape shape = Shape(32, 8, 128, 0);
  shape.block_tokens = 64;
  Run(shape, kOddLengths, kCluster);
  EXPECT_GE(Run(Shape(32, 8, 128, 0), {{2047, 1}}).cluster.splits, 8);
  EXPECT_EQ(Run(Shape(32, 8, 128, 0), {{2000, 1}, {1000, 1}}).cluster.rows, 2);
}

TEST_F(AttentionTest, DecodesInShares) {
  if (!IsHopper()) GTEST_SKIP() << "equal shares need sm_90";
  for (const Heads& h : {Heads{8, 8, 128},
                         {32, 8, 128},
                         {40, 8, 128},
                         {64, 8, 128},
                         {4, 4, 128},
                         {28, 4, 128},
                         {24, 12, 128},
                         {32, 32, 128},
                         {8, 2, 128},
                         {24, 6, 128},
                         {4, 1, 128},
                         {9, 3, 128}}) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads");
    FixtureShape shape = Shape(h.q, h.kv, h.dim, 0);
    for (const AttentionOptions& options : {kStreamK, kDeterministic}) {
      SCOPED_TRACE(options.deterministic);
      shape.shape.window = 0;
      EXPECT_GT(Run(shape, kOddLengths, options).work_tiles.count, 0);
      for (const int32_t context : {0, 15, 16, 300, 2047, 5000, 40001}) {
        SCOPED_TRACE(context);
        Run(shape, {{context, 1}}, options);
      }
      shape.shape.window = 333;
      Run(shape, kOddLengths, options);
      Run(shape, {{4000, 1}}, options);
    }
  }
}

TEST_F(AttentionTest, DecodesManyInShares) {
  if (!IsHopper()) GTEST_SKIP() << "equal shares need sm_90";
  for (const AttentionOptions& options : {kStreamK, kDeterministic}) {
    for (const DType dtype : {DType::kBF16, DType::kFp8}) {
      for (const int32_t kv_heads : {8, 6, 4, 2, 1}) {
        SCOPED_TRACE(::testing::Message() << kv_heads << " heads in " << Name(dtype)
                                          << (options.deterministic ? ", deterministic" : ""));
        FixtureShape shape = Shape(4 * kv_heads, kv_heads, 128, 0);
        shape.kv_dtype = dtype;
        for (const Lengths& lengths :
             {kOddLengths, Ragged(64), Lengths(256, {500, 1}), OneLong()}) {
          EXPECT_GT(Run(shape, lengths, options).work_tiles.count, 0);
        }
      }
    }
  }
}

// A rank with some of a model's KV heads gives the bits of one that has all of them.
TEST_F(AttentionTest, HeadsDoNotDependOnTheRank) {
  if (!IsHopper()) GTEST_SKIP() << "equal shares need sm_90";
  const auto rows_of = [](FixtureShape shape, const Lengths& lengths) {
    shape.tokens = TokensOf(lengths);
    Fixture fixture(shape, kDeterministic);
    fixture.Begin(lengths, 0);
    fixture.Launch(fixture.Plan(), shape.layers - 1);
    return fixture.Rows(0, fixture.rows());
  };
  for (const DType dtype : {DType::kBF16, DType::kFp8}) {
    for (const Heads& h : {Heads{32, 8, 128}, {64, 8, 128}, {36, 12, 128}, {32, 8, 64}}) {
      const auto group = static_cast<size_t>(h.q / h.kv);
      for (const Lengths& lengths :
           {kOddLengths, kMixed, Ragged(64), Lengths(256, {519, 1}), {{30000, 1}}}) {
        FixtureShape shape = Shape(h.q, h.kv, h.dim, 0);
        shape.kv_dtype = dtype;
        const std::vector<uint16_t> whole = rows_of(shape, lengths);
        for (const int32_t held : {6, 4, 3, 2, 1}) {
          if (h.kv % held != 0) continue;
          for (const int32_t first : {0, h.kv - held}) {
            SCOPED_TRACE(::testing::Message() << held << " of " << h.kv << " heads from " << first
                                              << ", " << Name(dtype) << ", " << lengths.size());
            shape.shape.q_heads = h.q / h.kv * held;
            shape.shape.kv_heads = held;
            shape.heads = {first, h.kv};
            const std::vector<uint16_t> part = rows_of(shape, lengths);
            const size_t cols = group * held * h.dim;
            for (size_t row = 0; row < part.size() / cols; ++row) {
              const auto* want = &whole[(row * h.kv + first) * group * h.dim];
              EXPECT_TRUE(std::equal(want, want + cols, &part[row * cols])) << "row " << row;
            }
          }
        }
      }
    }
  }
}

// The stream-K kernel writes the numbers in FP8 that LaunchQuantize makes of its result in bf16.
TEST_F(AttentionTest, RoundsToBf16BeforeFp8) {
  if (!IsHopper()) GTEST_SKIP() << "E4M3 needs sm_89, equal shares sm_90";
  Lengths lengths;  // rows of one split, which no other kernel combines
  for (int32_t i = 0; i < 128; ++i) lengths.emplace_back(i, 1);
  for (const DType dtype : {DType::kBF16, DType::kFp8}) {
    for (const int32_t kv_heads : {8, 6, 4, 2, 1}) {
      SCOPED_TRACE(::testing::Message() << kv_heads << " heads in " << Name(dtype));
      FixtureShape shape = Shape(4 * kv_heads, kv_heads, 128, TokensOf(lengths));
      shape.kv_dtype = dtype;
      Fixture fixture(shape, kDeterministic);
      fixture.Begin(lengths, 0);
      const AttentionPlan plan = fixture.Plan();
      EXPECT_EQ(plan.work_tiles.combine.rows, 0);
      fixture.Launch(plan, 0);
      const std::vector<float> want = fixture.QuantizedOut();
      EXPECT_TRUE(fixture.LaunchFp8(plan, 0) == want);
    }
  }
}

// All kernels support results in FP8: a kernel writes them itself, or a second kernel converts its
// bf16 result.
TEST_F(AttentionTest, GivesRowsInFp8) {
  if (!IsHopper()) GTEST_SKIP() << "E4M3 needs sm_89, equal shares sm_90";
  const auto expect_near = [](const Heads& h,
                              const Lengths& lengths,
                              int32_t padded_rows,
                              const AttentionOptions& options) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads");
    const FixtureShape shape = Shape(h.q, h.kv, h.dim, TokensOf(lengths));
    Fixture fixture(shape, options);
    fixture.Begin(lengths, padded_rows);
    const AttentionPlan plan = fixture.Plan();
    fixture.Launch(plan, 0);
    const std::vector<uint16_t> want = fixture.Rows(0, fixture.rows());
    const std::vector<float> got = fixture.LaunchFp8(plan, 0);
    ASSERT_EQ(got.size(), want.size());
    const size_t cols = got.size() / static_cast<size_t>(fixture.rows());
    for (size_t row = 0; row < got.size() / cols; ++row) {
      float largest = 0;
      for (size_t i = 0; i < cols; ++i) {
        largest = std::max(largest, std::abs(BrainToFloat(want[row * cols + i])));
      }
      for (size_t i = row * cols; i < (row + 1) * cols; ++i) {
        // Half a step of FP8 (three bits of mantissa) plus half a step of bf16. The smallest step
        // of FP8 is 2^-9, where the row's largest number becomes 448.
        const float number = BrainToFloat(want[i]);
        const float step = std::max(std::abs(number) / 14, largest / 448 / 256);
        ASSERT_NEAR(got[i], number, step) << "row " << row << ", column " << i % cols;
      }
    }
  };
  for (const Heads& h :
       {Heads{32, 8, 128}, {64, 8, 128}, {4, 4, 128}, {28, 4, 128}, {8, 2, 128}, {4, 1, 128}}) {
    expect_near(h, kOddLengths, 0, kStreamK);
    expect_near(h, Ragged(50), 64, kStreamK);
    expect_near(h, OneLong(), 0, kStreamK);
  }
  expect_near({24, 12, 128}, kOddLengths, 0, kStreamK);
  expect_near({32, 8, 128}, kOddLengths, 16, kCluster);
  expect_near({32, 8, 128}, kOddLengths, 0, kFlash2);
  expect_near({32, 8, 128}, kMixed, 0, kStreamK);
  expect_near({8, 4, 64}, kMixed, 0, {});
  expect_near({6, 2, 80}, kMixed, 0, {});
}

TEST_F(AttentionTest, DecodesOneSequence) {
  for (const int32_t context : {0, 1, 100, 300, 2047, 8192, 32768, 131071}) {
    SCOPED_TRACE(context);
    Run(Shape(32, 8, 128, 0), {{context, 1}});
    Run(Shape(16, 8, 64, 0), {{context, 1}});
  }
  Run(Shape(8, 4, 256, 0), {{131071, 1}});
}

TEST_F(AttentionTest, DecodesManySequences) {
  const FixtureShape shape = Shape(32, 8, 128, 0);
  EXPECT_EQ(Run(shape, Ragged(64), kFlash2).rows.combine.rows, 0);
  EXPECT_EQ(Run(shape, Ragged(64)).work_tiles.count > 0, IsHopper());
  Run(shape, Lengths(256, {500, 1}), kFlash2);
  EXPECT_EQ(Run(shape, Lengths(256, {500, 1})).work_tiles.count > 0, IsHopper());
  // A separate kernel combines the partial results of the long row.
  EXPECT_EQ(Run(shape, OneLong()).work_tiles.combine.rows > 0, IsHopper());
  EXPECT_GT(Run(shape, OneLong(), kFlash2).rows.combine.rows, 0);
}

TEST_F(AttentionTest, ComputesChunks) {
  for (const Heads& h : {Heads{32, 8, 64}, {32, 8, 128}, {24, 8, 128}, {8, 8, 128}, {16, 4, 256}}) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads of " << h.dim);
    const FixtureShape shape = Shape(h.q, h.kv, h.dim, 0);
    for (const Lengths& lengths : {Lengths{{0, 2048}},
                                   {{6144, 2048}},
                                   {{7680, 512}},
                                   {{0, 2048}, {0, 2048}},
                                   {{0, 193}, {0, 700}, {0, 1031}},
                                   {{1, 1000}, {0, 500}, {777, 333}}}) {
      const AttentionPlan plan = Run(shape, lengths);
      if (h.q < 24) continue;  // some of these steps have too little work for FlashAttention 3
      EXPECT_EQ(!plan.ragged.empty(), IsHopper());
      EXPECT_EQ(plan.chunks.work_tiles > 0, !IsHopper());
    }
  }
}

TEST_F(AttentionTest, ComputesShortChunksOfLongContexts) {
  for (const int32_t dim : {64, 128, 256}) {
    SCOPED_TRACE(dim);
    Run(Shape(32, 8, dim, 0), {{30000, 5}});
    Run(Shape(32, 8, dim, 0), {{30000, 100}});
    Run(Shape(32, 8, dim, 0), {{131000, 72}});
    Run(Shape(9, 1, dim, 0), {{15, 2}, {16, 1}, {31, 9}, {0, 60}});
  }
}

TEST_F(AttentionTest, ComputesMixedSteps) {
  for (const Heads& h : {Heads{32, 8, 64}, {32, 8, 128}, {8, 4, 256}, {6, 2, 128}}) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads of " << h.dim);
    Run(Shape(h.q, h.kv, h.dim, 0), kMixed);
    Run(Shape(h.q, h.kv, h.dim, 0), kMixed, kDeterministic);
  }
}

TEST_F(AttentionTest, ComputesWindows) {
  for (const int32_t window : {1, 7, 48, 300, 1024, 5000}) {
    SCOPED_TRACE(window);
    for (const Heads& h : {Heads{32, 8, 64}, {32, 8, 128}, {8, 4, 256}, {4, 2, 96}}) {
      FixtureShape shape = Shape(h.q, h.kv, h.dim, 0);
      shape.shape.window = window;
      Run(shape, kOddLengths);
      Run(shape, kMixed);
      Run(shape, {{3000, 1}});
      Run(shape, {{9000, 400}});
    }
  }
}

TEST_F(AttentionTest, TakesOddShapes) {
  for (const int32_t dim : {8, 16, 24, 72, 80, 96, 120, 192, 248}) {
    SCOPED_TRACE(dim);
    const AttentionPlan plan = Run(Shape(6, 2, dim, 0), kMixed);
    EXPECT_GT(plan.portable.work_tiles, 0);
  }
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    FixtureShape shape = Shape(9, 3, 64, 0);
    shape.kv_dtype = dtype;
    Run(shape, kMixed);
    shape.shape.head_dim = 256;
    shape.shape.window = 100;
    Run(shape, kMixed);
  }
  for (const int32_t block_tokens : {8, 32, 48, 64, 256}) {
    SCOPED_TRACE(block_tokens);
    for (const int32_t dim : {64, 96}) {
      FixtureShape shape = Shape(8, 2, dim, 0);
      shape.block_tokens = block_tokens;
      Lengths lengths = kMixed;
      shape.tokens = 0;
      for (auto& [context, rows] : lengths) context /= block_tokens > 64 ? 4 : 1;
      Run(shape, lengths);
    }
  }
}

TEST_F(AttentionTest, PortableTakesLongContexts) {
  Run(Shape(32, 8, 96, 0), {{131071, 1}});
  Run(Shape(4, 2, 80, 0), {{20000, 40}, {0, 100}});
}

// A captured graph computes steps of other lengths of the same class.
TEST_F(AttentionTest, RepeatsRecordedSteps) {
  for (const Heads& h :
       {Heads{32, 8, 64}, {32, 8, 128}, {8, 2, 128}, {4, 1, 128}, {32, 8, 256}, {32, 8, 96}}) {
    for (const AttentionOptions& options : {kFlash2, kCluster, kStreamK, kDeterministic}) {
      SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads of " << h.dim
                                        << (options.deterministic ? ", deterministic" : ""));
      FixtureShape shape = Shape(h.q, h.kv, h.dim, 200000);
      Fixture fixture(shape, options);
      const int32_t layer = shape.layers - 1;
      fixture.Begin({{3000, 1}, {2500, 1}, {4000, 1}}, 4);
      const AttentionPlan first = fixture.Plan();
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      Check(cudaStreamBeginCapture(fixture.stream(), cudaStreamCaptureModeThreadLocal), "capture");
      fixture.Launch(first, layer);
      Check(cudaStreamEndCapture(fixture.stream(), &graph), "capture");
      Check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
      for (const Lengths& lengths : {Lengths{{3000, 1}, {2500, 1}, {4000, 1}},
                                     {{4001, 1}, {2999, 1}, {2777, 1}},
                                     {{3500, 1}, {3600, 1}, {2600, 1}, {2560, 1}}}) {
        fixture.Begin(lengths, 4);
        const AttentionPlan plan = fixture.Plan();
        EXPECT_TRUE(plan == first) << "a plan for the same class of lengths";
        fixture.ClearOut();
        Check(cudaGraphLaunch(executable, fixture.stream()), "graph");
        EXPECT_LT(fixture.Error(layer), kTolerance);
        EXPECT_TRUE(fixture.PaddingUntouched());
      }
      cudaGraphExecDestroy(executable);
      cudaGraphDestroy(graph);
    }
  }
}

TEST_F(AttentionTest, RecordsFewPlans) {
  FixtureShape shape = Shape(32, 8, 128, 1 << 19);
  Fixture fixture(shape, {});
  for (const int32_t rows : {1, 4, 16, 32, 64}) {
    std::vector<AttentionPlan> plans;
    for (const int32_t context : {1, 50, 200, 700, 1500, 3000, 6000, 8000}) {
      fixture.Begin(Lengths(static_cast<size_t>(rows), {context, 1}), rows);
      const AttentionPlan plan = fixture.Plan();
      if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(plan);
      fixture.Launch(plan, 0);
      Check(cudaStreamSynchronize(fixture.stream()), "attention");
    }
    EXPECT_LE(plans.size(), 6) << rows << " rows";
  }
}

// In deterministic mode a row has the same bits alone, in a batch, and in chunks.
TEST_F(AttentionTest, RowsDoNotDependOnTheBatch) {
  for (const Heads& h :
       {Heads{16, 4, 64}, {16, 4, 128}, {8, 2, 128}, {4, 1, 128}, {16, 4, 256}, {16, 4, 80}}) {
    SCOPED_TRACE(::testing::Message() << h.q << " over " << h.kv << " heads of " << h.dim);
    FixtureShape shape = Shape(h.q, h.kv, h.dim, 60000);
    Fixture fixture(shape, kDeterministic);
    const int32_t layer = shape.layers - 1;
    const auto run = [&](const Lengths& lengths, const std::vector<int32_t>& numbers) {
      fixture.Begin(lengths, 0, numbers);
      fixture.Launch(fixture.Plan(), layer);
      return fixture.Rows(0, lengths[0].second);
    };
    for (const int32_t context : {0, 100, 1023, 1024, 5000, 20000}) {
      const auto alone = run({{context, 1}}, {9});
      EXPECT_EQ(alone, run({{context, 1}, {3000, 1}, {17, 1}}, {9, 1, 2})) << context;
      Lengths many(50, {400, 1});
      many[0] = {context, 1};
      std::vector<int32_t> numbers(50, 3);
      numbers[0] = 9;
      EXPECT_EQ(alone, run(many, numbers)) << context;
      EXPECT_EQ(alone, run({{context, 1}, {0, 900}}, {9, 4})) << context;
    }
    const auto whole = run({{0, 1500}}, {9});
    std::vector<uint16_t> splits;
    for (const auto& [first, count] : Lengths{{0, 700}, {700, 2}, {702, 798}}) {
      const auto part = run({{first, count}, {50, 1}, {10, 300}}, {9, 1, 2});
      splits.insert(splits.end(), part.begin(), part.end());
    }
    EXPECT_EQ(whole, splits);
  }
}

TEST_F(AttentionTest, RefusesShapes) {
  Fixture fixture(Shape(4, 2, 64, 1000), {});
  fixture.Begin({{0, 1}}, 0);
  auto fixed = *StepBuffer::Create(1 << 16);
  const auto code = [&](int32_t q_heads, int32_t kv_heads, int32_t head_dim) {
    const AttentionShape shape = {q_heads, kv_heads, head_dim, 0, 0, 1.0f};
    return fixture.attention().Plan(shape, fixture.step(), fixture.kv(), *fixed).status().code();
  };
  EXPECT_EQ(code(4, 2, 64), StatusCode::kOk);
  EXPECT_EQ(code(5, 2, 64), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(4, 2, 63), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(4, 2, 264), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(4, 1, 64), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::cuda::testing
