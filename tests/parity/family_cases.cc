#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

// The ops that only some model families need (FamilyOps), on backends that have them.
namespace baton::parity {
namespace {

bool Near(double got, double want, const Tolerance& tolerance) {
  const double size = std::fabs(want);
  return std::fabs(got - want) <= tolerance.elementwise * (1 + size) + tolerance.stored * size;
}

std::unique_ptr<Vector> Load(Ops& ops, std::span<const float> values) {
  auto vector = ops.LoadVector(values);
  EXPECT_TRUE(vector.ok()) << vector.status();
  return *std::move(vector);
}

// LayerNorm of `x` by the formula.
std::vector<double> Normed(std::span<const float> x, double epsilon) {
  const auto count = static_cast<double>(x.size());
  double mean = 0;
  for (const float value : x) mean += value / count;
  double variance = 0;
  for (const float value : x) variance += (value - mean) * (value - mean) / count;
  std::vector<double> out;
  for (const float value : x) out.push_back((value - mean) / std::sqrt(variance + epsilon));
  return out;
}

void CheckLayerNorm(Ops& ops, const Tolerance& tolerance, int64_t cols, bool bias) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  constexpr int64_t kRows = 5;
  const auto n = static_cast<size_t>(cols);
  auto x = RandomFloats(n * kRows, 141, 3.0f);
  for (float& value : x) value += 2.5f;  // a mean that counts
  const auto weight = RandomFloats(bias ? 2 * n : n, 142);
  const auto vector = Load(ops, weight);
  DeviceTensor residual(ops, DType::kF32, kRows, cols);
  residual.Write(x);
  const DeviceTensor out(ops, kRows, cols);
  InStep(ops, [&] { ops.family_ops()->LayerNorm(residual.view(), *vector, 1e-5f, out.view()); });
  const auto got = out.Read();
  for (size_t r = 0; r < kRows; ++r) {
    const auto want = Normed(std::span(x).subspan(r * n, n), 1e-5);
    for (size_t i = 0; i < n; ++i) {
      const double value = want[i] * weight[i] + (bias ? weight[n + i] : 0.0f);
      ASSERT_TRUE(Near(got[r * n + i], value, tolerance)) << "row " << r << ", column " << i;
    }
  }
}

double Activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kSquaredRelu:
      break;
  }
  return x > 0 ? x * x : 0;
}

void CheckActivate(Ops& ops, const Tolerance& tolerance, Activation activation) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  const std::vector<float> special = {0.0f, -0.0f, 1e-6f, 30.0f, -30.0f, 9984.0f, -9984.0f, -5.5f};
  auto values = RandomActivations(ops, size_t{4} * 147, 143, 3.0f);
  std::ranges::copy(special, values.begin());
  for (const float scale : {1.0f, 0.7f}) {
    const DeviceTensor x(ops, 4, 147, values);
    InStep(ops, [&] { ops.family_ops()->Activate(x.view(), activation, scale); });
    const auto got = x.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = Activated(double{values[i]} * scale, activation);
      ASSERT_TRUE(Near(got[i], want, tolerance)) << values[i] << " times " << scale;
    }
  }
}

void CheckScaleAndGate(Ops& ops, const Tolerance& tolerance) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  const auto values = RandomActivations(ops, size_t{3} * 37, 144);
  const auto gates = RandomActivations(ops, 3, 145, 4.0f);
  const DeviceTensor scaled(ops, 3, 37, values);
  const DeviceTensor gated(ops, 3, 37, values);
  const DeviceTensor gate(ops, 3, 1, gates);
  const auto own_gates = RandomActivations(ops, size_t{3} * 37, 146, 4.0f);
  const DeviceTensor each_gated(ops, 3, 37, values);
  const DeviceTensor each_gate(ops, 3, 37, own_gates);
  const DeviceTensor squared(ops, 3, 37, values);
  const DeviceTensor factors(ops, 3, 37, values);
  InStep(ops, [&] {
    ops.family_ops()->Multiply(squared.view(), factors.view());
    ops.family_ops()->Scale(scaled.view(), 2.5f);
    ops.family_ops()->MulSigmoid(gated.view(), gate.view());
    ops.family_ops()->MulSigmoid(each_gated.view(), each_gate.view());
  });
  const auto by_factor = scaled.Read();
  const auto by_gate = gated.Read();
  const auto by_own_gate = each_gated.Read();
  const auto by_itself = squared.Read();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(Near(by_factor[i], 2.5 * values[i], tolerance));
    ASSERT_TRUE(Near(by_itself[i], double{values[i]} * values[i], tolerance));
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    ASSERT_TRUE(Near(by_gate[i], sigmoid(gates[i / 37]) * values[i], tolerance));
    ASSERT_TRUE(Near(by_own_gate[i], sigmoid(own_gates[i]) * values[i], tolerance));
  }
}

// A logit that is not a number stays one, because sampling must see it.
void CheckSoftCap(Ops& ops, const Tolerance& tolerance) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  constexpr float kCap = 3.5f;
  const std::vector<float> special = {0.0f, -0.0f, 1e-6f, 30.0f, -30.0f, 1e30f, -1e30f, -3.5f};
  auto values = RandomFloats(size_t{4} * 147, 149, 5.0f);
  std::ranges::copy(special, values.begin());
  values.back() = std::nanf("1");  // whose bits the exponential would turn into a number
  DeviceTensor x(ops, DType::kF32, 4, 147);
  x.Write(values);
  InStep(ops, [&] { ops.family_ops()->SoftCap(x.view(), kCap); });
  const auto got = x.Read();
  EXPECT_TRUE(std::isnan(got.back()));
  for (size_t i = 0; i + 1 < got.size(); ++i) {
    const double want = kCap * std::tanh(double{values[i]} / kCap);
    ASSERT_TRUE(Near(got[i], want, tolerance)) << values[i] << " to " << got[i];
  }
}

constexpr HeadShape kModel = {6, 3, 24};

// One rank with all heads.
void CheckProjectionNorm(Ops& ops, const Tolerance& tolerance) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  constexpr int64_t kRows = 3;
  const int64_t dim = kModel.head_dim;
  const int64_t q_cols = kModel.q_heads * dim;
  const int64_t k_cols = kModel.kv_heads * dim;
  const int64_t cols = q_cols + 2 * k_cols;
  const auto values = RandomActivations(ops, static_cast<size_t>(kRows * cols), 146);
  const auto weight = RandomFloats(static_cast<size_t>(q_cols + k_cols), 147);
  const auto vector = Load(ops, weight);
  const HeadPlace place = {.model = kModel};
  const DeviceTensor qkv(ops, kRows, cols, values);
  const DeviceTensor squares(ops, DType::kF32, kRows, kModel.q_heads + kModel.kv_heads);
  InStep(ops, [&] {
    FamilyOps& family = *ops.family_ops();
    family.HeadSquares(qkv.view(), kModel, place, squares.view());
    family.NormProjections(qkv.view(), squares.view(), kModel, place, *vector, 1e-5f);
  });
  const auto got = qkv.Read();
  for (int64_t r = 0; r < kRows; ++r) {
    const auto row = std::span(values).subspan(static_cast<size_t>(r * cols), size_t(cols));
    const auto factor = [&](int64_t first, int64_t count) {
      double sum = 0;
      for (int64_t i = first; i < first + count; ++i) {
        sum += double{row[static_cast<size_t>(i)]} * row[static_cast<size_t>(i)];
      }
      return 1 / std::sqrt(sum / static_cast<double>(count) + 1e-5);
    };
    const double q = factor(0, q_cols);
    const double k = factor(q_cols, k_cols);
    for (int64_t i = 0; i < cols; ++i) {
      const auto at = static_cast<size_t>(i);
      const double scale = i < q_cols ? q : k;
      const double want = i < q_cols + k_cols ? row[at] * scale * weight[at] : row[at];
      ASSERT_TRUE(Near(got[static_cast<size_t>(r * cols + i)], want, tolerance)) << "column " << i;
    }
  }
}

// Ranks write the sums of their own heads only, and −0 for the others.
void CheckHeadSquares(Ops& ops, const Tolerance& tolerance) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  constexpr HeadShape kHeld = {1, 1, 24};
  const auto values = RandomActivations(ops, size_t{2} * 3 * 24, 148);
  for (const bool owns : {true, false}) {
    const HeadPlace place = {
        .model = kModel, .first_q_head = 4, .first_kv_head = 2, .owns_kv_heads = owns};
    const DeviceTensor qkv(ops, 2, int64_t{3} * 24, values);
    const DeviceTensor squares(ops, DType::kF32, 2, 9);
    InStep(ops, [&] { ops.family_ops()->HeadSquares(qkv.view(), kHeld, place, squares.view()); });
    const auto got = squares.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t head = i % 9;
      if (head == 4 || (owns && head == 8)) {
        const auto x = std::span(values).subspan(i / 9 * 72 + (head == 4 ? 0 : 24), 24);
        double want = 0;
        for (const float value : x) want += double{value} * value;
        ASSERT_TRUE(Near(got[i], want, tolerance)) << "head " << head;
      } else {
        ASSERT_TRUE(got[i] == 0 && std::signbit(got[i])) << "head " << head;
      }
    }
  }
}

void CheckHeadLayerNorm(Ops& ops, const Tolerance& tolerance) {
  if (ops.family_ops() == nullptr) GTEST_SKIP() << "this backend has no such ops";
  const auto dim = static_cast<size_t>(kModel.head_dim);
  const size_t normed = 9 * dim;
  const size_t cols = 12 * dim;
  const auto values = RandomActivations(ops, cols, 149);
  const auto weight = RandomFloats(normed, 150);
  const auto vector = Load(ops, weight);
  const DeviceTensor qkv(ops, 1, static_cast<int64_t>(cols), values);
  InStep(ops, [&] { ops.family_ops()->HeadLayerNorm(qkv.view(), kModel, *vector, 1e-5f); });
  const auto got = qkv.Read();
  for (size_t i = 0; i < cols; ++i) {
    const auto head = Normed(std::span(values).subspan(i / dim * dim, dim), 1e-5);
    const double want = i < normed ? head[i % dim] * weight[i] : values[i];
    ASSERT_TRUE(Near(got[i], want, tolerance)) << "column " << i;
  }
}

}  // namespace

std::vector<Case> FamilyCases() {
  std::vector<Case> cases;
  for (const int64_t cols : {1, 16, 37, 576}) {
    for (const bool bias : {false, true}) {
      cases.push_back({fmt::format("LayerNorm_{}_{}", cols, bias ? "bias" : "plain"),
                       [=](Ops& ops, const Tolerance& tolerance) {
                         CheckLayerNorm(ops, tolerance, cols, bias);
                       }});
    }
  }
  constexpr std::pair<const char*, Activation> kActivations[] = {
      {"Gelu", Activation::kGelu},
      {"GeluTanh", Activation::kGeluTanh},
      {"Silu", Activation::kSilu},
      {"SquaredRelu", Activation::kSquaredRelu}};
  for (const auto& [name, activation] : kActivations) {
    cases.push_back({name, [kind = activation](Ops& ops, const Tolerance& tolerance) {
                       CheckActivate(ops, tolerance, kind);
                     }});
  }
  cases.push_back({"ScaleAndGate", CheckScaleAndGate});
  cases.push_back({"SoftCap", CheckSoftCap});
  cases.push_back({"ProjectionNorm", CheckProjectionNorm});
  cases.push_back({"HeadSquares", CheckHeadSquares});
  cases.push_back({"HeadLayerNorm", CheckHeadLayerNorm});
  return cases;
}

}  // namespace baton::parity
