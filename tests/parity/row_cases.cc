#include <algorithm>
#include <cmath>

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

// The norm of an activation, as post-norms need it.
void CheckActivationNorm(Ops& ops, const Tolerance& tolerance, int64_t rows, int64_t cols) {
  const auto values = RandomActivations(ops, static_cast<size_t>(rows * cols), 46);
  const auto weight = RandomFloats(static_cast<size_t>(cols), 47);
  auto vector = ops.LoadVector(weight);
  ASSERT_TRUE(vector.ok());
  const DeviceTensor x(ops, rows, cols, values);
  const DeviceTensor out(ops, rows, cols);
  InStep(ops, [&] { ops.RmsNorm(x.view(), **vector, 1e-5f, out.view()); });
  const auto got = out.Read();
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = std::span(values).subspan(static_cast<size_t>(r * cols), size_t(cols));
    double squares = 0;
    for (const float value : row) squares += static_cast<double>(value) * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
    for (int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<size_t>(c);
      const double want = row[at] * factor * weight[at];
      const double size = std::fabs(want);
      ASSERT_NEAR(got[static_cast<size_t>(r * cols) + at],
                  want,
                  tolerance.elementwise * (1 + size) + tolerance.stored * size)
          << "row " << r;
    }
  }
}

void CheckAdd(Ops& ops, int64_t rows, int64_t cols) {
  const auto x = RandomFloats(static_cast<size_t>(rows * cols), 44, 3.0f);
  const auto delta = RandomActivations(ops, static_cast<size_t>(rows * cols), 45);
  DeviceTensor residual(ops, DType::kF32, rows, cols);
  residual.Write(x);
  const DeviceTensor extra(ops, rows, cols, delta);
  InStep(ops, [&] { ops.Add(residual.view(), extra.view()); });
  const auto got = residual.Read();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], x[i] + delta[i]) << i;
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
  for (const int64_t cols : {1, 37, 576, 4096, 8192}) {
    cases.push_back(
        {fmt::format("RmsNorm_Activation_{}", cols), [=](Ops& ops, const Tolerance& tolerance) {
           CheckActivationNorm(ops, tolerance, 13, cols);
         }});
  }
  for (const int64_t cols : {1, 37, 576, 4096}) {
    cases.push_back({fmt::format("Add_{}", cols),
                     [=](Ops& ops, const Tolerance&) { CheckAdd(ops, 13, cols); }});
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
  return cases;
}

}  // namespace baton::parity
