#include "kernels/cuda/graph/fuse_ops.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/overloaded.h"
#include "tests/gpu/simulated_rank.h"

// Which ops of a step are fused. Fused ops round less often, so that ops must be fused in the same
// way however a step is split.
namespace baton::cuda {
namespace {

class Fusions final : public GemmFusions {
 public:
  explicit Fusions(bool deterministic) : deterministic_(deterministic) {}

  bool deterministic() const override { return deterministic_; }
  bool SupportsFused(const GemmProblem& /*problem*/) const override { return false; }
  bool AppliesScales(const GemmProblem& problem) const override {
    return problem.x_dtype == DType::kFp8;
  }

 private:
  const bool deterministic_;
};

// The kinds of ops of a step's list, with what is fused into them.
std::set<std::string> KindsOf(std::vector<StepOp> ops, bool deterministic) {
  FuseOps(ops, Fusions(deterministic));
  std::set<std::string> kinds;
  const auto with = [](const std::string& name, bool fused, const char* what) {
    return fused ? name + " with " + what : name;
  };
  for (const StepOp& op : ops) {
    kinds.insert(std::visit(
        Overloaded{
            [&](const QuantizeOp& /*c*/) { return std::string("quantize"); },
            [&](const RescaleOp& /*c*/) { return std::string("rescale"); },
            [&](const NormOp& c) { return with("norm", c.fp8_out.data != nullptr, "quantize"); },
            [&](const MatMulOp& c) {
              return with("gemm", c.problem.x_scales != nullptr, "scales");
            },
            [&](const RopeOp& c) { return with("rope", c.scales.rows != nullptr, "scales"); },
            [&](const AttentionOp& c) {
              return with("attention", c.fp8_out.data != nullptr, "quantize");
            },
            [&](const auto& /*c*/) { return std::string("other"); }},
        op));
  }
  return kinds;
}

TEST(FuseOpsTest, ASplitStepIsFusedAsAWholeOne) {
  // Ranks of a deterministic group gather columns.
  constexpr std::pair<Model, bool> kCases[] = {
      {Model::kFp8, false}, {Model::kFp8, true}, {Model::kGatherFp8, true}};
  for (const int ranks : {2, 4}) {
    for (const auto& [model, deterministic] : kCases) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, deterministic " << deterministic);
      Rank rank(ranks - 1, ranks, model);
      EXPECT_EQ(KindsOf(rank.List(true), deterministic), KindsOf(rank.List(false), deterministic));
    }
  }
}

// The ranks add up the results of GEMMs before another op could apply the scales.
TEST(FuseOpsTest, GemmsApplyTheScalesThatNoOtherOpDoes) {
  Rank rank(0, 2, Model::kFp8);
  const std::set<std::string> whole = KindsOf(rank.List(false), /*deterministic=*/false);
  EXPECT_EQ(whole,
            (std::set<std::string>{"attention",
                                   "attention with quantize",
                                   "gemm",
                                   "gemm with scales",
                                   "norm with quantize",
                                   "other",
                                   "quantize",
                                   "rope with scales"}));
  std::set<std::string> exact = whole;
  exact.erase("gemm with scales");
  exact.insert("rescale");
  EXPECT_EQ(KindsOf(rank.List(false), /*deterministic=*/true), exact);
}

}  // namespace
}  // namespace baton::cuda
