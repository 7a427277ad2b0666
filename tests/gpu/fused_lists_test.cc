#include "kernels/cuda/graph/fused_lists.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/small_ops.h"

namespace baton::cuda {
namespace {

using Ops = std::vector<StepOp>;

class FusedListsTest : public testing::Test {
 protected:
  // Lists that differ in one number of one op.
  Ops List(int32_t token) { return {ops_.Gemm(x_, x_), EmbedOp{.first_token = token, .out = x_}}; }

  SmallOps ops_;
  const Tensor x_ = ops_.Matrix(DType::kBF16);
  FusedLists lists_;
};

TEST_F(FusedListsTest, FindsWhatBecameOfAnEqualList) {
  const Ops fused = {ops_.Gemm(x_, x_)};
  EXPECT_EQ(lists_.Find(List(1), false), nullptr);
  lists_.Keep(List(1), false, fused);
  ASSERT_NE(lists_.Find(List(1), false), nullptr);
  EXPECT_EQ(*lists_.Find(List(1), false), fused);
  EXPECT_EQ(lists_.Find(List(2), false), nullptr);
  EXPECT_EQ(lists_.Find(List(1), true), nullptr) << "rows of this one may be split";
}

TEST_F(FusedListsTest, KeepsTheListsThatWereUsedLast) {
  constexpr auto kLists = static_cast<int32_t>(FusedLists::kMaxLists);
  for (int32_t token = 0; token < kLists; ++token) lists_.Keep(List(token), false, {});
  EXPECT_NE(lists_.Find(List(0), false), nullptr);
  lists_.Keep(List(kLists), false, {});
  EXPECT_NE(lists_.Find(List(0), false), nullptr);
  EXPECT_EQ(lists_.Find(List(1), false), nullptr);
}

}  // namespace
}  // namespace baton::cuda
