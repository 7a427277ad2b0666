#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/parity.h"
#include "tests/parity/step_plan.h"

// Ops in the order in which a decoder issues them. A backend may fuse ops in this order.
namespace baton::parity {
namespace {

constexpr float kEpsilon = 1e-5f;

struct FeedForward {
  std::vector<float> norm, next_norm;  // [hidden]
  HostWeights gate, up, down;
};

// y = W x.
std::vector<double> Times(const HostWeights& weights, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(weights.rows));
  for (size_t row = 0; row < y.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) y[row] += weights.values[row * x.size() + i] * x[i];
  }
  return y;
}

std::vector<double> Normed(const std::vector<double>& x, const std::vector<float>& weight) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEpsilon);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

// The output of the feed-forward network, which is added to `residual`.
std::vector<double> Delta(const FeedForward& layer, const std::vector<double>& residual) {
  const std::vector<double> normed = Normed(residual, layer.norm);
  std::vector<double> hidden = Times(layer.gate, normed);
  const std::vector<double> up = Times(layer.up, normed);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i] / (1 + std::exp(-hidden[i]));
  return Times(layer.down, hidden);
}

// Accumulates the relative error (L2 norm) of results.
class Distance final {
 public:
  void Add(double got, double want) {
    error_ += (got - want) * (got - want);
    size_ += want * want;
  }
  double relative() const { return std::sqrt(error_ / size_); }

 private:
  double error_ = 0;
  double size_ = 0;
};

void CheckFeedForward(
    Ops& ops, const Tolerance& tolerance, int64_t rows, int64_t hidden, int64_t intermediate) {
  const auto weights = [&](int64_t outputs, int64_t inputs, uint64_t seed) {
    return HeldBy(ops, RandomWeights(DType::kF32, outputs, inputs, seed));
  };
  const FeedForward layer = {.norm = RandomFloats(static_cast<size_t>(hidden), 71),
                             .next_norm = RandomFloats(static_cast<size_t>(hidden), 72),
                             .gate = weights(intermediate, hidden, 73),
                             .up = weights(intermediate, hidden, 74),
                             .down = weights(hidden, intermediate, 75)};
  const auto norm = ops.LoadVector(layer.norm);
  const auto next_norm = ops.LoadVector(layer.next_norm);
  const auto gate_up = ops.LoadGateUp(layer.gate.matrix(), layer.up.matrix());
  const HostMatrix down_part = layer.down.matrix();
  const auto down = ops.LoadMatrix({&down_part, 1});
  ASSERT_TRUE(norm.ok() && next_norm.ok() && gate_up.ok() && down.ok());

  const auto count = static_cast<size_t>(rows * hidden);
  const auto x = RandomFloats(count, 76, 3.0f);
  const auto before = RandomActivations(ops, count, 77);
  DeviceTensor residual(ops, DType::kF32, rows, hidden);
  residual.Write(x);
  const DeviceTensor delta(ops, rows, hidden, before);
  const DeviceTensor normed(ops, rows, hidden);
  const DeviceTensor between(ops, rows, intermediate);
  const DeviceTensor out(ops, rows, hidden);
  InStep(ops, [&] {
    ops.AddRmsNorm(residual.view(), delta.view(), **norm, kEpsilon, normed.view());
    ops.MatMulSiluMul(normed.view(), **gate_up, nullptr, between.view());
    ops.MatMul(between.view(), **down, nullptr, delta.view());
    ops.AddRmsNorm(residual.view(), delta.view(), **next_norm, kEpsilon, out.view());
  });

  const auto sums = residual.Read();
  const auto got = out.Read();
  Distance added;
  Distance next;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const size_t at = row * static_cast<size_t>(hidden);
    std::vector<double> want(static_cast<size_t>(hidden));
    for (size_t i = 0; i < want.size(); ++i) want[i] = x[at + i] + before[at + i];
    const std::vector<double> more = Delta(layer, want);
    for (size_t i = 0; i < want.size(); ++i) {
      added.Add(sums[at + i] - want[i], more[i]);
      want[i] += more[i];
    }
    const std::vector<double> last = Normed(want, layer.next_norm);
    for (size_t i = 0; i < want.size(); ++i) next.Add(got[at + i], last[i]);
  }
  // Four intermediate results are stored, and so rounded, as activations.
  const double bound = 10 * tolerance.elementwise + 2 * tolerance.stored;
  EXPECT_LT(added.relative(), bound);
  EXPECT_LT(next.relative(), bound);
}

}  // namespace

std::vector<Case> LayerCases() {
  struct Size {
    int64_t rows, hidden, intermediate;
  };
  std::vector<Case> cases;
  for (const Size& size : {Size{1, 512, 1024}, Size{3, 512, 1024}, Size{1030, 64, 128}}) {
    cases.push_back({fmt::format("FeedForward_{}x{}x{}", size.rows, size.hidden, size.intermediate),
                     [=](Ops& ops, const Tolerance& tolerance) {
                       CheckFeedForward(ops, tolerance, size.rows, size.hidden, size.intermediate);
                     }});
  }
  return cases;
}

}  // namespace baton::parity
