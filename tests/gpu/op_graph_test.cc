#include "kernels/cuda/graph/op_graph.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/small_ops.h"

// Which op wrote what an op reads.
namespace baton::cuda {
namespace {

using Writer = std::optional<size_t>;

class OpGraphTest : public testing::Test {
 protected:
  SmallOps ops_;
  const Tensor a_ = ops_.Matrix(DType::kBF16);
  const Tensor b_ = ops_.Matrix(DType::kBF16);
  const Tensor c_ = ops_.Matrix(DType::kBF16);
};

TEST_F(OpGraphTest, AnOpReadsWhatWasWrittenLast) {
  // The second op writes in place.
  const OpGraph graph({ops_.Gemm(a_, b_), RescaleOp{.x = b_}, ops_.Gemm(b_, c_)});
  EXPECT_EQ(graph.Producer(1, Place::Of(b_)), Writer(0));
  EXPECT_EQ(graph.Producer(2, Place::Of(b_)), Writer(1));
  EXPECT_EQ(graph.Producer(0, Place::Of(a_)), std::nullopt) << "the step does not write it";
}

TEST_F(OpGraphTest, ABufferThatIsUsedAgainHoldsAnotherValue) {
  const OpGraph graph({ops_.Gemm(a_, b_), ops_.Gemm(b_, c_), ops_.Gemm(a_, b_), ops_.Gemm(b_, c_)});
  EXPECT_EQ(graph.SoleProducer(1, Place::Of(b_)), Writer(0));
  EXPECT_EQ(graph.SoleProducer(3, Place::Of(b_)), Writer(2));
}

TEST_F(OpGraphTest, AValueMayHaveSeveralReaders) {
  const Tensor d = ops_.Matrix(DType::kBF16);
  const OpGraph graph({ops_.Gemm(a_, b_), ops_.Gemm(b_, c_), ops_.Gemm(b_, d)});
  EXPECT_EQ(graph.Producer(2, Place::Of(b_)), Writer(0));
  EXPECT_EQ(graph.SoleProducer(1, Place::Of(b_)), std::nullopt);
  EXPECT_EQ(graph.SoleProducer(2, Place::Of(b_)), std::nullopt);
}

TEST_F(OpGraphTest, ThePartsOfAnOperandAreNoProducer) {
  const Tensor upper = b_.Rows(0, 2);
  const Tensor lower = b_.Rows(2, 2);
  const OpGraph graph({ops_.Gemm(a_.Rows(0, 2), upper),
                       ops_.Gemm(a_.Rows(2, 2), lower),
                       ops_.Gemm(b_, c_),
                       ops_.Gemm(upper, c_.Rows(0, 2))});
  EXPECT_EQ(graph.Producer(2, Place::Of(b_)), std::nullopt);
  EXPECT_EQ(graph.LastWriter(2, Place::Of(b_)), std::nullopt) << "two ops wrote it";
  EXPECT_EQ(graph.Producer(3, Place::Of(upper)), Writer(0));
}

TEST_F(OpGraphTest, ColumnsOfOneMatrixAreApart) {
  const Tensor left = b_.Columns(0, 8);
  const Tensor right = b_.Columns(8, 8);
  const OpGraph graph({ops_.Gemm(a_, left), ops_.Gemm(a_, right), ops_.Gemm(left, c_)});
  EXPECT_EQ(graph.Producer(2, Place::Of(left)), Writer(0));
  EXPECT_EQ(graph.LastWriter(2, Place::Of(left)), Writer(0));
}

TEST_F(OpGraphTest, TheLastWriterMayHaveWrittenAPart) {
  const OpGraph graph({ops_.Gemm(a_, b_.Columns(0, 8)), ops_.Gemm(b_, c_)});
  EXPECT_EQ(graph.Producer(1, Place::Of(b_)), std::nullopt);
  EXPECT_EQ(graph.LastWriter(1, Place::Of(b_)), Writer(0));
}

TEST_F(OpGraphTest, AnOpMovesWhereNothingItNeedsChanges) {
  const Tensor d = ops_.Matrix(DType::kBF16);
  const Tensor e = ops_.Matrix(DType::kBF16);
  const auto can_move = [&](const StepOp& between) {
    return OpGraph({ops_.Gemm(a_, b_), between, ops_.Gemm(b_, c_)}).CanMove(0, 2);
  };
  EXPECT_TRUE(can_move(ops_.Gemm(d, e)));
  EXPECT_TRUE(can_move(ops_.Gemm(a_, e))) << "both read the same";
  EXPECT_FALSE(can_move(ops_.Gemm(d, a_))) << "its input is overwritten";
  EXPECT_FALSE(can_move(ops_.Gemm(b_, e))) << "its result is read";
  EXPECT_FALSE(can_move(ops_.Gemm(d, b_))) << "its result is overwritten";
  EXPECT_FALSE(can_move(NotifyOp{})) << "others may read what the notification tells";
  EXPECT_FALSE(can_move(ExchangeOp(BarrierOp{}))) << "ranks issue exchanges in one order";
}

TEST_F(OpGraphTest, RemovedOpsLeaveTheirValues) {
  OpGraph graph({ops_.Gemm(a_, b_), RescaleOp{.x = b_}, ops_.Gemm(b_, c_)});
  graph.Remove(1);
  EXPECT_EQ(graph.Producer(2, Place::Of(b_)), std::nullopt) << "values change with Refresh";
  graph.Refresh();
  EXPECT_EQ(graph.Producer(2, Place::Of(b_)), Writer(0));
  EXPECT_EQ(graph.Take().size(), 2u);
}

}  // namespace
}  // namespace baton::cuda
