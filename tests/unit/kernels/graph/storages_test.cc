#include "kernels/graph/storages.h"

#include <gtest/gtest.h>

namespace baton::graph {
namespace {

TEST(StoragesTest, OpsInPlaceShareMemoryAndOthersDoNot) {
  StepGraph graph;
  const ValueId residual = graph.Add({.name = "residual", .cols = 8});
  const ValueId normed = graph.Add({.name = "normed", .dtype = DType::kBF16, .cols = 8});
  const ValueId delta = graph.Add({.name = "delta", .dtype = DType::kBF16, .cols = 8});
  const ValueId sum = graph.Add({.name = "residual", .cols = 8});
  const ValueId logits = graph.Add({.name = "logits", .rows = RowCount::kLogits, .cols = 40});
  graph.Append(EmbedOp{.out = residual});
  graph.Append(NormOp{.x = residual, .out = normed});
  graph.Append(MatMulOp{.x = normed, .out = delta});
  graph.Append(AddOp{.residual = residual, .delta = delta, .out = sum});
  graph.Append(MatMulOp{.x = sum, .out = logits});
  graph.AddResult(logits);
  const Storages storages = StoragesOf(graph);
  EXPECT_EQ(storages.of_values, (std::vector<StorageId>{0, 1, 2, 0, 3}));
  ASSERT_EQ(storages.all.size(), 4u);
  EXPECT_EQ(storages.all[0].first, 0u);
  EXPECT_EQ(storages.all[0].last, 4u);
  EXPECT_EQ(storages.all[1].first, 1u);
  EXPECT_EQ(storages.all[1].last, 2u);
  EXPECT_EQ(storages.all[1].dtype, DType::kBF16);
  EXPECT_EQ(storages.all[2].last, 3u);
  EXPECT_FALSE(storages.all[0].result);
  EXPECT_TRUE(storages.all[3].result);
  EXPECT_EQ(storages.all[3].rows, RowCount::kLogits);
  EXPECT_EQ(storages.all[3].cols, 40);
}

TEST(StoragesTest, AnExchangeKeepsTheMemoryAndTheResult) {
  StepGraph graph;
  const ValueId part = graph.Add({.name = "logits", .cols = 8, .share = Columns{{4, 8}}});
  const ValueId unused = graph.Add({.name = "unused", .cols = 8});
  const ValueId whole = graph.Add({.name = "logits", .cols = 8});
  graph.Append(EmbedOp{.out = part});
  graph.Append(GatherColumnsOp{.x = part, .out = whole});
  graph.AddResult(whole);
  const Storages storages = StoragesOf(graph);
  EXPECT_EQ(storages.of_values[static_cast<size_t>(part)], 0);
  EXPECT_EQ(storages.of_values[static_cast<size_t>(whole)], 0);
  EXPECT_EQ(storages.of_values[static_cast<size_t>(unused)], -1);
  ASSERT_EQ(storages.all.size(), 1u);
  EXPECT_TRUE(storages.all[0].result);
}

}  // namespace
}  // namespace baton::graph
