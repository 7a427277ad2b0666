#include <cstring>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/graph/fuse_add_norm.h"
#include "kernels/graph/run_graph.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/step_plan.h"

// Random graphs before and after a pass, run op by op on the CPU.
namespace baton::graph {
namespace {

constexpr int64_t kCols = 48;
constexpr int64_t kRows = 3;
// The values that a step begins with. The first one is the residual.
constexpr size_t kFirstValues = 5;

class PassesOnCpuTest : public ::testing::Test {
 protected:
  PassesOnCpuTest() {
    weight_ = *ops_->LoadVector(parity::RandomFloats(kCols, 1));
    const parity::HostWeights host = parity::RandomWeights(DType::kF32, kCols, kCols, 2);
    const HostMatrix matrix = host.matrix();
    matrix_ = *ops_->LoadMatrix({&matrix, 1});
    gate_up_ = *ops_->LoadGateUp(matrix, matrix);
  }

  static ValueId New(StepGraph& graph) { return graph.Add({.name = "value", .cols = kCols}); }

  // An op that only some families need: LayerNorm of the residual, or an op in place of x.
  void AppendFamilyOp(
      StepGraph& graph, uint64_t kind, ValueId residual, ValueId x, ValueId out) const {
    if (kind == 4) {
      graph.Append(LayerNormOp{.x = residual, .weight = weight_.get(), .out = out});
    } else if (kind == 5) {
      graph.Append(ScaleOp{.x = x, .factor = 0.5f, .out = out});
    } else if (kind == 6) {
      graph.Append(SoftCapOp{.x = x, .cap = 2, .out = out});
    } else {
      graph.Append(ActivateOp{.x = x, .activation = Activation::kGeluTanh, .out = out});
    }
  }

  // A graph of `count` random ops, which reads values that no op has replaced.
  StepGraph RandomGraph(uint64_t seed, int count) const {
    std::mt19937_64 random(seed);
    StepGraph graph;
    ValueId residual = New(graph);
    std::vector<ValueId> others;
    while (others.size() + 1 < kFirstValues) others.push_back(New(graph));
    for (int i = 0; i < count; ++i) {
      const ValueId x = others[random() % others.size()];
      const bool adds = random() % 3 == 0;
      const ValueId out = New(graph);
      if (adds) {
        graph.Append(AddOp{.residual = residual, .delta = x, .out = out});
        residual = out;
        continue;
      }
      const auto kind = random() % 8;
      if (kind > 3) {
        AppendFamilyOp(graph, kind, residual, x, out);
        for (ValueId& other : others) {
          if (other == x && kind != 4) other = out;  // which has replaced x
        }
        continue;
      }
      if (kind < 2) {
        graph.Append(NormOp{.x = residual, .weight = weight_.get(), .epsilon = 1e-5f, .out = out});
      } else if (kind == 2) {
        graph.Append(MatMulOp{.x = x, .weight = matrix_.get(), .out = out});
      } else {
        graph.Append(GatedMatMulOp{.x = x, .gate_up = gate_up_.get(), .out = out});
      }
      others[random() % others.size()] = out;
    }
    return graph;
  }

  // What the memory of all values holds after a run that begins with the same random numbers each
  // time. A value has memory of its own, except where an op works in place.
  std::vector<std::vector<float>> Run(const StepGraph& graph) {
    std::vector<std::unique_ptr<parity::DeviceTensor>> memory;
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < graph.values().size(); ++i) {
      memory.push_back(std::make_unique<parity::DeviceTensor>(
          *ops_, kRows, kCols, parity::RandomFloats(kRows * kCols, 10 + i)));
      tensors.push_back(memory.back()->view());
    }
    for (const Op& op : graph.ops()) {
      if (const auto in_place = ReplacementOf(op)) {
        tensors[static_cast<size_t>(in_place->now)] =
            tensors[static_cast<size_t>(in_place->before)];
      }
    }
    parity::InStep(*ops_, [&] {
      RunGraph(graph, {.values = tensors, .rows = kRows, .logit_rows = kRows}, *ops_);
    });
    std::vector<std::vector<float>> held;
    for (const auto& one : memory) held.push_back(one->Read());
    return held;
  }

  CpuDevice device_;
  std::unique_ptr<Ops> ops_ = *MakeCpuOps(device_, {1, BestCpuIsa()});
  std::unique_ptr<Vector> weight_;
  std::unique_ptr<Matrix> matrix_;
  std::unique_ptr<Matrix> gate_up_;
};

TEST_F(PassesOnCpuTest, FusedNormsGiveTheSameBits) {
  size_t fused_ops = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const StepGraph graph = RandomGraph(seed, 24);
    StepGraph fused = graph;
    FuseAddNorm(fused);
    fused_ops += graph.ops().size() - fused.ops().size();
    const auto want = Run(graph);
    const auto got = Run(fused);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::memcmp(want[i].data(), got[i].data(), want[i].size() * sizeof(float)), 0)
          << "seed " << seed << ", v" << i << "\n"
          << ToString(fused);
    }
  }
  EXPECT_GT(fused_ops, 200u);
}

TEST_F(PassesOnCpuTest, ANormOfAnotherValueIsNotFused) {
  StepGraph graph;
  for (int i = 0; i < 4; ++i) New(graph);
  graph.Append(AddOp{.residual = 0, .delta = 1, .out = 2});
  graph.Append(NormOp{.x = 1, .weight = weight_.get(), .out = 3});
  FuseAddNorm(graph);
  EXPECT_EQ(ToString(graph), "v2:value = Add v0 v1\nv3:value = Norm v1\n");
}

}  // namespace
}  // namespace baton::graph
