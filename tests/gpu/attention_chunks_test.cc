#include <cmath>
#include <cstddef>

#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention.h"
#include "tests/gpu/attention_harness.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda::testing {
namespace {

// In deterministic mode, a chunk has the same bits whether or not the cached K and V of all chunks
// are more than one launch of FlashAttention 3 gathers.
TEST(AttentionChunksTest, DoNotDependOnOtherContexts) {
  if (!HaveGpu() || !IsHopper()) {
    GTEST_SKIP() << "no GPU of sm_90: chunks of FlashAttention 3 were NOT tested";
  }
  FixtureShape shape;
  shape.shape = {.q_heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 1.5f / std::sqrt(128.0f)};
  shape.tokens = 60000;
  const Lengths all = {{3000, 500}, {0, 300}, {20000, 40}, {700, 900}};
  const auto run = [&](const Lengths& lengths, size_t gather_bytes, size_t launches) {
    Fixture fixture(shape, {.deterministic = true, .gather_bytes = gather_bytes});
    fixture.Begin(lengths, 0, {9, 1, 2, 3});
    const AttentionPlan plan = fixture.Plan();
    EXPECT_EQ(plan.ragged.size(), launches);
    fixture.Launch(plan, 0);
    EXPECT_LT(fixture.Error(0), 0.02);
    return fixture.Rows(0, lengths[0].second);
  };
  const auto alone = run({all[0]}, size_t{512} << 20, 1);
  EXPECT_EQ(alone, run(all, size_t{512} << 20, 1));
  // 4 KiB for each token: the third sequence takes more than a launch gathers.
  EXPECT_EQ(alone, run(all, size_t{32} << 20, 3));
}

}  // namespace
}  // namespace baton::cuda::testing
