#include "kernels/graph/place_exchanges.h"

#include <gtest/gtest.h>

namespace baton::graph {
namespace {

// A layer of one of two ranks, up to the sum of attention and residual.
class Layer {
 public:
  Layer(Share attention, Share delta)
      : attention_(std::move(attention)), delta_(std::move(delta)) {}

  StepGraph Build(bool of_logit_rows) {
    const ValueId embedded = New("residual", Summand{});
    graph_.Append(EmbedOp{.out = embedded});
    const ValueId qkv = New("qkv");
    graph_.Append(NormOp{.x = embedded, .out = qkv});
    const ValueId rotated = New("qkv");
    graph_.Append(RopeAndWriteKvOp{.qkv = qkv, .out = rotated});
    graph_.Append(KvWrittenOp{7});
    ValueId attention = New("attention", attention_);
    graph_.Append(AttentionOp{.qkv = rotated, .out = attention});
    if (of_logit_rows) {
      const ValueId rows = New("rows", attention_);
      graph_.Append(GatherRowsOp{.x = attention, .out = rows});
      attention = rows;
    }
    const ValueId delta = New("delta", delta_);
    graph_.Append(MatMulOp{.x = attention, .out = delta});
    graph_.Append(AddOp{.residual = embedded, .delta = delta, .out = New("residual")});
    PlaceExchanges(graph_);
    EXPECT_TRUE(Check(graph_).ok()) << Check(graph_);
    return graph_;
  }

 private:
  ValueId New(std::string_view name, Share share = Whole{}) {
    return graph_.Add({.name = name, .cols = 8, .share = std::move(share)});
  }

  const Share attention_;
  const Share delta_;
  StepGraph graph_;
};

TEST(PlaceExchangesTest, GathersColumnsWhereAnOpReadsAllOfThem) {
  const Columns halves = {{4, 8}};
  EXPECT_EQ(ToString(Layer(halves, halves).Build(false)),
            "v0:residual = Embed\n"
            "v6:residual = AllReduce v0\n"
            "v1:qkv = Norm v6\n"
            "v2:qkv = RopeAndWriteKv v1\n"
            "v3:attention = Attention v2\n"
            "v7:attention = GatherColumns v3\n"
            "KvWritten\n"
            "v4:delta = MatMul v7\n"
            "v8:delta = GatherColumns v4\n"
            "v5:residual = Add v6 v8\n");
}

// The gate of a shared expert and the activation of a network without a gate work on what a rank
// has; only what follows needs all columns.
TEST(PlaceExchangesTest, OpsInPlaceKeepTheColumnsOfARank) {
  StepGraph graph;
  const Columns halves = {{4, 8}};
  const auto add = [&](std::string_view name, Share share = Whole{}) {
    return graph.Add({.name = name, .cols = 8, .share = std::move(share)});
  };
  const ValueId x = add("x");
  const ValueId gate = add("gate");
  graph.Append(EmbedOp{.out = x});
  graph.Append(MatMulOp{.x = x, .out = gate});
  const ValueId inner = add("inner", halves);
  const ValueId activated = add("inner", halves);
  const ValueId gated = add("inner", halves);
  const ValueId capped = add("inner", halves);
  graph.Append(MatMulOp{.x = x, .out = inner});
  graph.Append(ActivateOp{.x = inner, .out = activated});
  graph.Append(SigmoidGateOp{.x = activated, .gate = gate, .out = gated});
  graph.Append(SoftCapOp{.x = gated, .out = capped});
  graph.Append(MatMulOp{.x = capped, .out = add("delta")});
  PlaceExchanges(graph);
  EXPECT_TRUE(Check(graph).ok()) << Check(graph);
  EXPECT_EQ(ToString(graph),
            "v0:x = Embed\n"
            "v1:gate = MatMul v0\n"
            "v2:inner = MatMul v0\n"
            "v3:inner = Activate v2\n"
            "v4:inner = SigmoidGate v3 v1\n"
            "v5:inner = SoftCap v4\n"
            "v7:inner = GatherColumns v5\n"
            "v6:delta = MatMul v7\n");
}

TEST(PlaceExchangesTest, AddsUpSummands) {
  EXPECT_EQ(ToString(Layer(Whole{}, Summand{}).Build(false)),
            "v0:residual = Embed\n"
            "v6:residual = AllReduce v0\n"
            "v1:qkv = Norm v6\n"
            "v2:qkv = RopeAndWriteKv v1\n"
            "v3:attention = Attention v2\n"
            "v4:delta = MatMul v3\n"
            "v7:delta = AllReduce v4\n"
            "KvWritten\n"
            "v5:residual = Add v6 v7\n");
}

TEST(PlaceExchangesTest, RowsAreGatheredBeforeColumns) {
  const Columns halves = {{4, 8}};
  EXPECT_EQ(ToString(Layer(halves, Summand{}).Build(true)),
            "v0:residual = Embed\n"
            "v7:residual = AllReduce v0\n"
            "v1:qkv = Norm v7\n"
            "v2:qkv = RopeAndWriteKv v1\n"
            "v3:attention = Attention v2\n"
            "v4:rows = GatherRows v3\n"
            "v8:rows = GatherColumns v4\n"
            "KvWritten\n"
            "v5:delta = MatMul v8\n"
            "v9:delta = AllReduce v5\n"
            "v6:residual = Add v7 v9\n");
}

// Without an exchange after it, only a barrier shows that the other ranks have written their KV.
TEST(PlaceExchangesTest, KvIsAwaitedByABarrierWhereNoExchangeFollows) {
  StepGraph graph;
  for (int i = 0; i < 3; ++i) graph.Add({.name = "qkv", .cols = 8});
  graph.Append(EmbedOp{.out = 0});
  for (const ValueId layer : {0, 1}) {
    graph.Append(RopeAndWriteKvOp{.qkv = layer, .out = layer + 1});
    graph.Append(KvWrittenOp{layer});
  }
  graph.Append(SendOp{.x = 2, .stage = 1});
  PlaceExchanges(graph);
  EXPECT_EQ(ToString(graph),
            "v0:qkv = Embed\n"
            "v1:qkv = RopeAndWriteKv v0\n"
            "Barrier\n"
            "KvWritten\n"
            "v2:qkv = RopeAndWriteKv v1\n"
            "Barrier\n"
            "KvWritten\n"
            "Send v2\n");
}

// A recurrent layer writes a state, as attention writes KV.
TEST(PlaceExchangesTest, StatesAreAwaitedAsKvIs) {
  StepGraph graph;
  for (int i = 0; i < 3; ++i) graph.Add({.name = "x", .cols = 8});
  graph.Append(EmbedOp{.out = 0});
  for (const ValueId layer : {0, 1}) {
    graph.Append(RecurrentOp{.x = layer, .gates = 0, .out = layer + 1});
    graph.Append(KvWrittenOp{layer});
  }
  PlaceExchanges(graph);
  EXPECT_TRUE(Check(graph).ok()) << Check(graph);
  EXPECT_EQ(ToString(graph),
            "v0:x = Embed\n"
            "v1:x = Recurrent v0 v0\n"
            "Barrier\n"
            "KvWritten\n"
            "v2:x = Recurrent v1 v0\n"
            "Barrier\n"
            "KvWritten\n");
}

// The logits are gathered on the first rank alone, and that rank may send them on.
TEST(PlaceExchangesTest, TheResultIsGatheredOnTheFirstRank) {
  StepGraph graph;
  graph.Add({.name = "residual", .cols = 8});
  graph.Add({.name = "delta", .cols = 8, .share = Columns{{4, 8}}});
  graph.Append(EmbedOp{.out = 0});
  graph.Append(MatMulOp{.x = 0, .out = 1});
  graph.Append(SendOp{.x = 1, .stage = 0});
  graph.AddResult(1);
  PlaceExchanges(graph);
  EXPECT_EQ(ToString(graph),
            "v0:residual = Embed\n"
            "v1:delta = MatMul v0\n"
            "v2:delta = GatherColumns v1\n"
            "Send v2\n");
  EXPECT_EQ(graph.results(), std::vector<ValueId>{2});
  EXPECT_FALSE(std::get<GatherColumnsOp>(graph.ops()[2]).to_all);
}

}  // namespace
}  // namespace baton::graph
