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
// Buffer 0 is the residual.
constexpr BufferId kBufferCount = 5;

class PassesOnCpuTest : public ::testing::Test {
 protected:
  PassesOnCpuTest() {
    weight_ = *ops_->LoadVector(parity::RandomFloats(kCols, 1));
    const parity::HostWeights host = parity::RandomWeights(DType::kF32, kCols, kCols, 2);
    const HostMatrix matrix = host.matrix();
    matrix_ = *ops_->LoadMatrix({&matrix, 1});
    gate_up_ = *ops_->LoadGateUp(matrix, matrix);
    for (BufferId i = 0; i < kBufferCount; ++i) {
      buffers_.push_back({"buffer", DType::kF32, kCols});
    }
  }

  // A graph of `count` random ops, in which each value is read while its buffer holds it.
  StepGraph RandomGraph(uint64_t seed, int count) const {
    std::mt19937_64 random(seed);
    StepGraph graph;
    std::vector<ValueId> newest(kBufferCount);
    for (BufferId buffer = 0; buffer < kBufferCount; ++buffer) {
      newest[static_cast<size_t>(buffer)] = graph.Add({.buffer = buffer, .cols = kCols});
    }
    const auto pick = [&](BufferId first) {
      return first + static_cast<BufferId>(random() % static_cast<uint64_t>(kBufferCount - first));
    };
    for (int i = 0; i < count; ++i) {
      const BufferId from = pick(1);
      const BufferId to = from == kBufferCount - 1 ? 1 : from + 1;
      const ValueId x = newest[static_cast<size_t>(from)];
      const bool adds = random() % 3 == 0;
      const BufferId written = adds ? 0 : to;
      const ValueId out = graph.Add({.buffer = written, .cols = kCols});
      if (adds) {
        graph.Append(AddOp{.residual = newest[0], .delta = x, .out = out});
      } else if (const auto kind = random() % 4; kind < 2) {
        graph.Append(NormOp{.x = newest[0], .weight = weight_.get(), .epsilon = 1e-5f, .out = out});
      } else if (kind == 2) {
        graph.Append(MatMulOp{.x = x, .weight = matrix_.get(), .out = out});
      } else {
        graph.Append(GatedMatMulOp{.x = x, .gate_up = gate_up_.get(), .out = out});
      }
      newest[static_cast<size_t>(written)] = out;
    }
    return graph;
  }

  // What the buffers hold after a run that begins with the same random numbers each time.
  std::vector<std::vector<float>> Run(const StepGraph& graph) {
    std::vector<std::unique_ptr<parity::DeviceTensor>> memory;
    std::vector<Tensor> tensors;
    for (BufferId i = 0; i < kBufferCount; ++i) {
      memory.push_back(std::make_unique<parity::DeviceTensor>(
          *ops_, kRows, kCols, parity::RandomFloats(kRows * kCols, 10 + static_cast<uint64_t>(i))));
      tensors.push_back(memory.back()->view());
    }
    parity::InStep(*ops_, [&] {
      RunGraph(graph, {.buffers = tensors, .rows = kRows, .logit_rows = kRows}, *ops_);
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
  Buffers buffers_;
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
          << "seed " << seed << ", buffer " << i << "\n"
          << ToString(fused, buffers_);
    }
  }
  EXPECT_GT(fused_ops, 200u);
}

TEST_F(PassesOnCpuTest, ANormOfAnotherValueIsNotFused) {
  StepGraph graph;
  for (const BufferId buffer : {0, 1, 0, 2}) graph.Add({.buffer = buffer, .cols = kCols});
  graph.Append(AddOp{.residual = 0, .delta = 1, .out = 2});
  graph.Append(NormOp{.x = 1, .weight = weight_.get(), .out = 3});
  FuseAddNorm(graph);
  EXPECT_EQ(ToString(graph, buffers_), "v2:buffer = Add v0 v1\nv3:buffer = Norm v1\n");
}

}  // namespace
}  // namespace baton::graph
