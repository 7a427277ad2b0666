#include "kernels/graph/step_graph.h"

#include <gtest/gtest.h>

namespace baton::graph {
namespace {

const Buffers kBuffers = {{"residual", DType::kF32, 8}, {"delta", DType::kF32, 8}};

// A graph whose residual v0 is normalised to v1, after which v2 = v0 + v1.
StepGraph NormThenAdd() {
  StepGraph graph;
  for (const BufferId buffer : {0, 1, 0}) graph.Add({.buffer = buffer, .cols = 8});
  graph.Append(EmbedOp{.out = 0});
  graph.Append(NormOp{.x = 0, .out = 1});
  graph.Append(AddOp{.residual = 0, .delta = 1, .out = 2});
  return graph;
}

void ExpectWrong(const StepGraph& graph, std::string_view message) {
  const Status status = Check(graph, kBuffers);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status), message);
}

TEST(StepGraphTest, IsPrintedAsALineForEachOp) {
  EXPECT_EQ(ToString(NormThenAdd(), kBuffers),
            "v0:residual = Embed\n"
            "v1:delta = Norm v0\n"
            "v2:residual = Add v0 v1\n");
}

TEST(StepGraphTest, AValidGraphPasses) {
  EXPECT_TRUE(Check(NormThenAdd(), kBuffers).ok());
}

TEST(StepGraphTest, AValueMustBeWrittenBeforeItIsRead) {
  StepGraph graph = NormThenAdd();
  std::vector<Op> ops = graph.TakeOps();
  graph.Append(ops[1]);
  ExpectWrong(graph, "Norm: v0:residual is read before it is written");
}

TEST(StepGraphTest, AValueIsWrittenOnce) {
  StepGraph graph = NormThenAdd();
  graph.Append(NormOp{.x = 2, .out = 1});
  ExpectWrong(graph, "Norm: v1:delta is written twice");
}

TEST(StepGraphTest, AValueIsNotReadAfterAnotherHasTakenItsBuffer) {
  StepGraph graph = NormThenAdd();
  const ValueId normed = graph.Add({.buffer = 1, .cols = 8});
  graph.Append(NormOp{.x = 0, .out = normed});
  ExpectWrong(graph, "Norm: v0:residual is read after v2 has taken its buffer");
}

TEST(StepGraphTest, AValueFitsItsBuffer) {
  StepGraph graph = NormThenAdd();
  const ValueId wide = graph.Add({.buffer = 1, .cols = 9});
  graph.Append(NormOp{.x = 2, .out = wide});
  ExpectWrong(graph, "Norm: v3:delta has 9 columns, its buffer 8");
}

}  // namespace
}  // namespace baton::graph
