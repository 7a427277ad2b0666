#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"
#include "tests/parity/weight_types.h"

namespace baton::parity {
namespace {

void CheckNorm(Ops& ops, const Tolerance& tolerance, int64_t rows, int64_t cols, bool add) {
  const auto x = RandomFloats(static_cast<size_t>(rows * cols), 41, 3.0f);
  const auto delta = RandomActivations(ops, static_cast<size_t>(rows * cols), 42);
  const auto weight = RandomFloats(static_cast<size_t>(cols), 43);
  auto vector = ops.LoadVector(weight);
  ASSERT_TRUE(vector.ok());
  DeviceTensor residual(ops, DType::kF32, rows, cols);
  residual.Write(x);
  const DeviceTensor extra(ops, rows, cols, delta);
  const DeviceTensor out(ops, rows, cols);
  InStep(ops, [&] {
    if (add) {
      ops.AddRmsNorm(residual.view(), extra.view(), **vector, 1e-5f, out.view());
    } else {
      ops.RmsNorm(residual.view(), **vector, 1e-5f, out.view());
    }
  });
  const auto got = out.Read();
  const auto sum = residual.Read();
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      ASSERT_EQ(sum[i], add ? x[i] + delta[i] : x[i]) << "residual, row " << r;
      squares += static_cast<double>(sum[i]) * sum[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
    for (int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<size_t>(r * cols + c);
      const double want = sum[i] * factor * weight[static_cast<size_t>(c)];
      const double size = std::fabs(want);
      ASSERT_NEAR(got[i], want, tolerance.elementwise * (1 + size) + tolerance.stored * size)
          << "row " << r;
    }
  }
}

void CheckEmbed(Ops& ops, const Tolerance& tolerance, DType dtype) {
  const HostWeights table = HeldBy(ops, RandomWeights(dtype, 70, 256, 51));
  const HostMatrix host = table.matrix();
  auto matrix = ops.LoadMatrix({&host, 1});
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  History history(ops, {1, 1, 8}, DType::kF32, 16, {{0, 6}});
  StepPlan plan = history.LastStep();
  plan.tokens = {0, 69, 15, 16, 33, 69};
  const DeviceTensor out(ops, DType::kF32, 6, 256);
  ASSERT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
  ops.Embed(**matrix, 0, out.view());
  ASSERT_TRUE(ops.EndStep().ok());
  const auto got = out.Read();
  for (size_t i = 0; i < got.size(); ++i) {
    const float want = table.values[static_cast<size_t>(plan.tokens[i / 256]) * 256 + i % 256];
    ASSERT_NEAR(got[i], want, 1e-6 + (1e-6 + tolerance.stored) * std::fabs(want)) << i;
  }
}

void CheckGather(Ops& ops, DType dtype) {
  History history(ops, {1, 1, 8}, DType::kF32, 16, {{0, 5}});
  StepPlan plan = history.LastStep();
  plan.logit_rows = {0, 3};
  DeviceTensor x(ops, dtype, 5, 20);
  x.Write(RandomFloats(size_t{5} * 20, 61));
  const DeviceTensor out(ops, dtype, 2, 20);
  ASSERT_TRUE(ops.BeginStep(plan.input(), history.cache().view).ok());
  ops.GatherLogitRows(x.view(), out.view());
  ASSERT_TRUE(ops.EndStep().ok());
  const auto in = x.Read();
  const auto got = out.Read();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 20, in.begin()));
  EXPECT_TRUE(std::equal(got.begin() + 20, got.end(), in.begin() + 60));
}

std::vector<double> Multiply(const HostWeights& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) y[o] += w.values[o * x.size() + k] * x[k];
  }
  return y;
}

struct HostExperts {
  HostWeights router;
  std::vector<HostWeights> gate, up, down;
};

std::vector<double> Mixture(const HostExperts& experts,
                            const std::vector<double>& x,
                            size_t chosen,
                            bool normalize) {
  std::vector<double> scores = Multiply(experts.router, x);
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (normalize) {
    sum = 0;
    for (size_t i = 0; i < chosen; ++i) sum += scores[order[i]];
  }
  std::vector<double> out(x.size());
  for (size_t i = 0; i < chosen; ++i) {
    const size_t e = order[i];
    std::vector<double> hidden = Multiply(experts.gate[e], x);
    const std::vector<double> up = Multiply(experts.up[e], x);
    for (size_t k = 0; k < hidden.size(); ++k) hidden[k] *= up[k] / (1 + std::exp(-hidden[k]));
    const std::vector<double> down = Multiply(experts.down[e], hidden);
    for (size_t k = 0; k < out.size(); ++k) out[k] += scores[e] / sum * down[k];
  }
  return out;
}

struct ExpertShape {
  size_t experts = 6;
  int32_t per_token = 2;
  int64_t hidden = 64;
  int64_t width = 96;
  int64_t rows = 9;
};

void CheckExperts(
    Ops& ops, const Tolerance& tolerance, DType dtype, bool normalize, const ExpertShape& shape) {
  HostExperts host;
  host.router = HeldBy(ops, RandomWeights(DType::kF32, shape.experts, shape.hidden, 70));
  std::vector<std::unique_ptr<Matrix>> gate_up;
  std::vector<std::unique_ptr<Matrix>> down;
  for (size_t e = 0; e < shape.experts; ++e) {
    host.gate.push_back(HeldBy(ops, RandomWeights(dtype, shape.width, shape.hidden, 71 + e)));
    host.up.push_back(HeldBy(ops, RandomWeights(dtype, shape.width, shape.hidden, 81 + e)));
    host.down.push_back(HeldBy(ops, RandomWeights(dtype, shape.hidden, shape.width, 91 + e)));
    gate_up.push_back(*ops.LoadGateUp(host.gate[e].matrix(), host.up[e].matrix()));
    const HostMatrix matrix = host.down[e].matrix();
    down.push_back(*ops.LoadMatrix({&matrix, 1}));
  }
  const HostMatrix router = host.router.matrix();
  const auto router_matrix = *ops.LoadMatrix({&router, 1});
  const auto x = RandomActivations(ops, static_cast<size_t>(shape.rows * shape.hidden), 72);
  const DeviceTensor in(ops, shape.rows, shape.hidden, x);
  const DeviceTensor out(ops, shape.rows, shape.hidden);
  InStep(ops, [&] {
    ops.Experts(
        in.view(), {router_matrix.get(), gate_up, down, shape.per_token, normalize}, out.view());
  });
  const auto got = out.Read();
  const auto given = in.Read();
  for (int64_t r = 0; r < shape.rows; ++r) {
    const std::vector<double> row(given.begin() + r * shape.hidden,
                                  given.begin() + (r + 1) * shape.hidden);
    const auto want = Mixture(host, row, static_cast<size_t>(shape.per_token), normalize);
    // Three GEMMs in sequence: terms that cancel lose relative precision.
    double largest = 1;
    for (const double value : want) largest = std::max(largest, std::fabs(value));
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_NEAR(got[static_cast<size_t>(r * shape.hidden) + k],
                  want[k],
                  (tolerance.product * 200 + 4 * tolerance.stored) * largest)
          << "row " << r;
    }
  }
}

}  // namespace

std::vector<Case> RowCases() {
  std::vector<Case> cases;
  for (const int64_t cols : {1, 16, 37, 576, 1000}) {
    for (const bool add : {false, true}) {
      cases.push_back({fmt::format("{}_{}", add ? "AddRmsNorm" : "RmsNorm", cols),
                       [=](Ops& ops, const Tolerance& tolerance) {
                         CheckNorm(ops, tolerance, 13, cols, add);
                       }});
    }
  }
  for (const DType dtype : kWeightTypes) {
    cases.push_back(
        {fmt::format("Embed_{}", Name(dtype)),
         [=](Ops& ops, const Tolerance& tolerance) { CheckEmbed(ops, tolerance, dtype); }});
  }
  cases.push_back({"GatherLogitRows",
                   [](Ops& ops, const Tolerance&) { CheckGather(ops, ops.activation_dtype()); }});
  cases.push_back({"GatherLogitRows_Residual",
                   [](Ops& ops, const Tolerance&) { CheckGather(ops, DType::kF32); }});
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    for (const bool normalize : {false, true}) {
      cases.push_back(
          {fmt::format("Experts_{}_{}", Name(dtype), normalize ? "normalized" : "plain"),
           [=](Ops& ops, const Tolerance& tolerance) {
             CheckExperts(ops, tolerance, dtype, normalize, ExpertShape{});
           }});
    }
  }
  for (const ExpertShape& shape : {ExpertShape{.rows = 1},
                                   ExpertShape{8, 1, 40, 24, 5},
                                   ExpertShape{4, 4, 72, 136, 3},
                                   ExpertShape{16, 4, 128, 48, 170},
                                   ExpertShape{128, 8, 64, 32, 33}}) {
    cases.push_back({fmt::format("Experts_{}_of_{}_{}x{}_m{}",
                                 shape.per_token,
                                 shape.experts,
                                 shape.width,
                                 shape.hidden,
                                 shape.rows),
                     [=](Ops& ops, const Tolerance& tolerance) {
                       CheckExperts(ops, tolerance, DType::kBF16, true, shape);
                     }});
  }
  return cases;
}

}  // namespace baton::parity
