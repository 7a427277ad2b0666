#include "kernels/graph/step_graph.h"

#include <gtest/gtest.h>

namespace baton::graph {
namespace {

// A graph whose residual v0 is normalised to v1, after which v2 = v0 + v1.
StepGraph NormThenAdd() {
  StepGraph graph;
  for (const char* name : {"residual", "delta", "residual"}) graph.Add({.name = name, .cols = 8});
  graph.Append(EmbedOp{.out = 0});
  graph.Append(NormOp{.x = 0, .out = 1});
  graph.Append(AddOp{.residual = 0, .delta = 1, .out = 2});
  return graph;
}

void ExpectWrong(const StepGraph& graph, std::string_view message) {
  const Status status = Check(graph);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status), message);
}

TEST(StepGraphTest, IsPrintedAsALineForEachOp) {
  EXPECT_EQ(ToString(NormThenAdd()),
            "v0:residual = Embed\n"
            "v1:delta = Norm v0\n"
            "v2:residual = Add v0 v1\n");
}

TEST(StepGraphTest, AValidGraphPasses) {
  EXPECT_TRUE(Check(NormThenAdd()).ok());
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

TEST(StepGraphTest, AValueIsNotReadAfterAnotherHasReplacedIt) {
  StepGraph graph = NormThenAdd();
  const ValueId normed = graph.Add({.name = "delta", .cols = 8});
  graph.Append(NormOp{.x = 0, .out = normed});
  ExpectWrong(graph, "Norm: v0:residual is read after v2 has replaced it");
}

TEST(StepGraphTest, AValueHasTheShapeOfTheOneThatItReplaces) {
  StepGraph graph = NormThenAdd();
  const ValueId wide = graph.Add({.name = "residual", .cols = 9});
  graph.Append(AddOp{.residual = 2, .delta = 1, .out = wide});
  ExpectWrong(graph, "Add: v3:residual replaces v2, which has another shape");
}

}  // namespace
}  // namespace baton::graph
