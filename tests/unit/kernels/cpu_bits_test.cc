#include <bit>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/group_weights.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/latent_run.h"
#include "tests/parity/recurrent_run.h"
#include "tests/parity/step_plan.h"
#include "tests/parity/weight_types.h"

// Every instruction set and every number of threads must give the same bits.
namespace baton {
namespace {

using parity::DeviceTensor;
using parity::History;
using parity::HostWeights;
using parity::RandomFloats;
using parity::RandomWeights;
using parity::StepPlan;
using Floats = std::vector<float>;

struct Setting {
  CpuIsa isa;
  int threads;
};

class CpuBitsTest : public testing::TestWithParam<Setting> {
 protected:
  // Expects that `run` returns the same bits with the portable kernels on one thread and with the
  // setting of this test.
  void ExpectSame(const std::function<Floats(Ops&)>& run) {
    const Floats want = run(**Make({CpuIsa::kPortable, 1}));
    const Floats got = run(**Make(GetParam()));
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(want[i]), std::bit_cast<uint32_t>(got[i]))
          << "element " << i << " is " << want[i] << " and " << got[i];
    }
  }

 private:
  StatusOr<std::unique_ptr<Ops>> Make(const Setting& setting) {
    auto ops = MakeCpuOps(device_, {setting.threads, setting.isa});
    EXPECT_TRUE(ops.ok()) << ops.status();
    return ops;
  }

  CpuDevice device_;
};

TEST_P(CpuBitsTest, MatMul) {
  for (const DType dtype : kWeightTypes) {
    const HostWeights weights = RandomWeights(dtype, 200, 512, 1);
    for (const int64_t m : {1, 5, 8, 13, 70}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", Name(dtype), m));
      ExpectSame([&](Ops& ops) {
        const HostMatrix host = weights.matrix();
        const auto matrix = *ops.LoadMatrix({&host, 1});
        auto x = RandomFloats(static_cast<size_t>(m * 512), 2);
        x[3] = 1000.0f;  // an outlier gives its block a coarse scale
        const DeviceTensor in(ops, m, 512, x);
        const DeviceTensor out(ops, m, 200);
        ops.MatMul(in.view(), *matrix, nullptr, out.view());
        return out.Read();
      });
    }
  }
}

TEST_P(CpuBitsTest, MatMulOfGroups) {
  for (const parity::GroupForm& form : parity::GroupForms()) {
    const HostWeights weights = parity::RandomGroupWeights(form, 200, 384, 1);
    for (const int64_t m : {1, 5, 8, 13, 70}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", form.name, m));
      ExpectSame([&](Ops& ops) {
        const HostMatrix host = weights.matrix();
        const auto matrix = *ops.LoadMatrix({&host, 1});
        const DeviceTensor in(ops, m, 384, RandomFloats(static_cast<size_t>(m * 384), 2));
        const DeviceTensor out(ops, m, 200);
        ops.MatMul(in.view(), *matrix, nullptr, out.view());
        return out.Read();
      });
    }
  }
}

TEST_P(CpuBitsTest, NanAndInfinityInARowStayInIt) {
  const HostWeights weights = RandomWeights(DType::kQ4_1, 20, 64, 1);
  const auto run = [&](Ops& ops) {
    const HostMatrix host = weights.matrix();
    const auto matrix = *ops.LoadMatrix({&host, 1});
    auto x = RandomFloats(size_t{4} * 64, 2);
    x[5] = std::numeric_limits<float>::quiet_NaN();
    x[64 + 7] = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < 64; ++i) x[128 + i] = i == 9 ? 1e-38f : 0.0f;
    const DeviceTensor in(ops, 4, 64, x);
    const DeviceTensor out(ops, 4, 20);
    ops.MatMul(in.view(), *matrix, nullptr, out.view());
    Floats kinds;
    for (const float value : out.Read()) kinds.push_back(std::isnan(value) ? -1.0f : value);
    return kinds;
  };
  ExpectSame([&](Ops& ops) { return run(ops); });
  CpuDevice device;
  const Floats got = run(**MakeCpuOps(device, {1, GetParam().isa}));
  EXPECT_EQ(got[0], -1.0f);
  EXPECT_EQ(got[20], -1.0f);
  EXPECT_EQ(got[40], 0.0f);
  EXPECT_NE(got[60], -1.0f);
}

TEST_P(CpuBitsTest, NormRopeAttention) {
  struct Shape {
    HeadShape heads;
    DType dtype;
    int32_t window;
    bool sinks = false;
    float cap = 0;
  };
  for (const Shape& shape : {Shape{{6, 2, 64}, DType::kF32, 0},
                             Shape{{3, 1, 40}, DType::kF16, 11},
                             Shape{{3, 1, 40}, DType::kF16, 11, true},
                             Shape{{3, 1, 40}, DType::kF16, 0, false, 0.3f},
                             Shape{{5, 1, 128}, DType::kBF16, 0}}) {
    SCOPED_TRACE(Name(shape.dtype));
    ExpectSame([&](Ops& ops) {
      History history(ops, shape.heads, shape.dtype, 16, {{70, 30}, {200, 1}, {0, 5}});
      history.Fill();
      const StepPlan plan = history.LastStep();
      const auto values = history.Rows(plan);
      const auto cols = static_cast<int64_t>(values.size()) / plan.rows();
      const DeviceTensor qkv(ops, plan.rows(), cols, values);
      const DeviceTensor out(ops, plan.rows(), int64_t{shape.heads.q_heads} * shape.heads.head_dim);
      const auto dim = static_cast<size_t>(shape.heads.head_dim);
      const auto norm = *ops.LoadVector(RandomFloats(dim, 4));
      const auto frequencies = *ops.LoadVector(Floats{1.0f, 0.3f, 0.01f, 0.001f});
      RopeArgs rope{frequencies.get(), 1.1f, RopePairing::kHalves, norm.get(), norm.get(), 1e-6f};
      EXPECT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
      ops.RopeAndWriteKv(qkv.view(), shape.heads, rope, 1);
      const auto sinks = *ops.LoadVector(Floats{0.4f, -1.0f, 20.0f});
      AttentionArgs attention{shape.heads, 1, 0.1f, shape.window};
      if (shape.sinks) attention.sinks = sinks.get();
      attention.cap = shape.cap;
      ops.Attention(qkv.view(), attention, out.view());
      EXPECT_TRUE(ops.EndStep().ok());
      Floats result = out.Read();
      const Floats rotated = qkv.Read();
      result.insert(result.end(), rotated.begin(), rotated.end());
      return result;
    });
  }
}

TEST_P(CpuBitsTest, LatentAttention) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(Name(dtype));
    ExpectSame([&](Ops& ops) { return parity::LatentRun(ops, dtype).Compute(); });
  }
}

TEST_P(CpuBitsTest, RecurrentLayers) {
  const RecurrentShape shapes[] = {{RecurrentRule::kDelta, 3, 6, 20, 85, 4},
                                   {RecurrentRule::kChannelDelta, 3, 3, 20, 85, 4},
                                   {RecurrentRule::kStateSpace, 3, 6, 20, 85, 4},
                                   {RecurrentRule::kSelectiveScan, 3, 3, 20, 85, 4}};
  for (const RecurrentShape& shape : shapes) {
    SCOPED_TRACE(static_cast<int>(shape.rule));
    ExpectSame([&](Ops& ops) {
      parity::RecurrentRun run(ops, shape, 3, 30);
      Floats result = run.Compute();
      const Floats state = run.State(1);
      result.insert(result.end(), state.begin(), state.end());
      return result;
    });
  }
}

TEST_P(CpuBitsTest, GatedProductAndSampling) {
  ExpectSame([&](Ops& ops) {
    const HostWeights gate = RandomWeights(DType::kQ8_0, 300, 64, 1);
    const HostWeights up = RandomWeights(DType::kF16, 300, 64, 2);
    const auto matrix = *ops.LoadGateUp(gate.matrix(), up.matrix());
    const DeviceTensor in(ops, 9, 64, RandomFloats(size_t{9} * 64, 3));
    const DeviceTensor out(ops, 9, 300);
    ops.MatMulSiluMul(in.view(), *matrix, nullptr, out.view());
    Floats result = out.Read();
    SamplingParams params;
    params.top_p = 0.9f;
    params.top_logprobs = 3;
    std::vector<SamplingRow> rows(9);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].params = &params;
      rows[i].position = i;
    }
    std::vector<SampledToken> tokens(9);
    ops.Sample(out.view(), rows, tokens);
    for (const SampledToken& token : tokens) {
      result.push_back(static_cast<float>(token.token));
      result.push_back(token.logprob);
    }
    return result;
  });
}

// A width that ends within a panel, and products on both sides of the limit.
TEST_P(CpuBitsTest, ExpertsWithBiasesAndAClampedGate) {
  ExpectSame([](Ops& ops) {
    const HostWeights scores = RandomWeights(DType::kF32, 2, 64, 1);
    const HostMatrix router_matrix = scores.matrix();
    const auto router = *ops.LoadMatrix({&router_matrix, 1});
    const auto router_bias = *ops.LoadVector(Floats{0.2f, -0.1f});
    std::vector<std::unique_ptr<Matrix>> gate_up, down;
    std::vector<std::unique_ptr<Vector>> gate_up_bias, down_bias;
    for (uint64_t e = 0; e < 2; ++e) {
      const HostWeights gate = RandomWeights(DType::kBF16, 40, 64, 10 + e);
      const HostWeights up = RandomWeights(DType::kBF16, 40, 64, 20 + e);
      const HostWeights out = RandomWeights(DType::kBF16, 64, 40, 30 + e);
      gate_up.push_back(*ops.LoadGateUp(gate.matrix(), up.matrix()));
      const HostMatrix matrix = out.matrix();
      down.push_back(*ops.LoadMatrix({&matrix, 1}));
      gate_up_bias.push_back(*ops.LoadVector(RandomFloats(80, 40 + e)));
      down_bias.push_back(*ops.LoadVector(RandomFloats(64, 50 + e)));
    }
    const DeviceTensor in(ops, 9, 64, RandomFloats(size_t{9} * 64, 3));
    const DeviceTensor out(ops, 9, 64);
    ops.Experts(in.view(),
                {.router = router.get(),
                 .gate_up = gate_up,
                 .down = down,
                 .experts_per_token = 1,
                 .gate = {.limit = 0.6f, .alpha = 1.702f},
                 .router_bias = router_bias.get(),
                 .gate_up_bias = gate_up_bias,
                 .down_bias = down_bias},
                out.view());
    return out.Read();
  });
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const CpuIsa isa : kCpuIsas) {
    if (!Supported(isa)) continue;
    for (const int threads : {1, 2, 3}) settings.push_back({isa, threads});
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(All, CpuBitsTest, testing::ValuesIn(Settings()), [](const auto& test) {
  return fmt::format("{}_{}", Name(test.param.isa), test.param.threads);
});

}  // namespace
}  // namespace baton
