#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/rows/quantize.h"
#include "tests/gpu/fp8_numbers.h"
#include "tests/gpu/test_device.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/step_plan.h"

// Compares mixtures of experts with FP8 weights with simple loops over the numbers that E4M3 can
// represent.
namespace baton {
namespace {

using cuda::testing::InFp8;
using cuda::testing::Quantizable;
using parity::DeviceTensor;
using parity::HostWeights;
using parity::InStep;

// Tolerances relative to the sum of the terms' absolute values: of tensor cores, which accumulate
// FP8 with few bits, of sums in float32, and of the weights of the chosen experts.
constexpr double kFp8Sum = 1e-3;
constexpr double kFloatSum = 1e-4;
constexpr double kExpertWeight = 1e-4;
constexpr double kStored = 0x1p-9;  // of rounding to bf16

struct Shape {
  size_t experts;
  int32_t per_token;
  int64_t hidden, width, rows;
};

// Whether the CUDA backend computes the GEMMs with wgmma, and so with inputs in FP8.
bool UsesWgmma(const Shape& shape, bool deterministic) {
  return cuda::MayRun(cuda::KernelFamily::kHopper, cuda::TestedDevice()) && !deterministic &&
         shape.hidden % 128 == 0 && shape.width % 128 == 0 &&
         shape.rows * shape.per_token >= 8 * static_cast<int64_t>(shape.experts);
}

// Random weights whose rows have different magnitudes, so that a row with the scale of another one
// has a wrong result.
HostWeights SpreadWeights(const Ops& ops, int64_t rows, int64_t cols, uint64_t seed) {
  HostWeights weights = parity::RandomWeights(DType::kF32, rows, cols, seed);
  for (size_t i = 0; i < weights.values.size(); ++i) {
    const auto row = static_cast<int>(i / static_cast<size_t>(cols));
    weights.values[i] = std::ldexp(weights.values[i], -(row % 5));
  }
  std::memcpy(weights.bytes.data(), weights.values.data(), weights.bytes.size());
  return parity::HeldBy(ops, std::move(weights));
}

std::vector<float> SpreadInputs(const Ops& ops, const Shape& shape) {
  auto x = parity::RandomActivations(ops, static_cast<size_t>(shape.rows * shape.hidden), 72);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::ldexp(x[i], -static_cast<int>(i / static_cast<size_t>(shape.hidden) % 3));
  }
  return x;
}

// Numbers with bounds on the errors of the device.
struct Bounded {
  std::vector<double> values;
  std::vector<double> errors;
};

// A layer's weights on the host, as the device represents them, and in the backend.
struct Layer {
  std::vector<float> router;
  std::vector<std::vector<float>> gate, up, down;
  std::unique_ptr<Matrix> device_router;
  std::vector<std::unique_ptr<Matrix>> device_gate_up, device_down;
  bool fp8_down;  // not with columns that the tensor cores do not support in FP8

  Layer(Ops& ops, const Shape& shape) : fp8_down(shape.width % 16 == 0) {
    const auto hidden = static_cast<size_t>(shape.hidden);
    const auto width = static_cast<size_t>(shape.width);
    const HostWeights scores = parity::HeldBy(
        ops,
        parity::RandomWeights(DType::kF32, static_cast<int64_t>(shape.experts), shape.hidden, 70));
    const HostMatrix scores_matrix = scores.matrix();
    device_router = *ops.LoadMatrix({&scores_matrix, 1});
    router = scores.values;
    for (size_t e = 0; e < shape.experts; ++e) {
      const HostWeights gates = SpreadWeights(ops, shape.width, shape.hidden, 100 + e);
      const HostWeights ups = SpreadWeights(ops, shape.width, shape.hidden, 200 + e);
      const HostWeights downs = SpreadWeights(ops, shape.hidden, shape.width, 300 + e);
      const HostMatrix part = Quantizable(downs);
      device_gate_up.push_back(*ops.LoadGateUp(Quantizable(gates), Quantizable(ups)));
      device_down.push_back(*ops.LoadMatrix({&part, 1}));
      EXPECT_EQ(device_gate_up[e]->bytes(), cuda::Fp8Rows::Bytes(2 * shape.width, shape.hidden));
      EXPECT_EQ(device_down[e]->bytes(),
                fp8_down ? cuda::Fp8Rows::Bytes(shape.hidden, shape.width) : 2 * hidden * width);
      gate.push_back(InFp8(gates.values, hidden));
      up.push_back(InFp8(ups.values, hidden));
      down.push_back(fp8_down ? InFp8(downs.values, width) : downs.values);
    }
  }

  std::vector<float> Compute(Ops& ops, const Shape& shape, const std::vector<float>& x) const {
    const auto rows = static_cast<int64_t>(x.size()) / shape.hidden;
    const DeviceTensor in(ops, rows, shape.hidden, x);
    const DeviceTensor out(ops, rows, shape.hidden);
    const ExpertArgs args{device_router.get(), device_gate_up, device_down, shape.per_token, true};
    InStep(ops, [&] { ops.Experts(in.view(), args, out.view()); });
    return out.Read();
  }
};

// The dot product of x with a row of a matrix, and the sum of the terms' absolute values.
std::pair<double, double> Dot(const std::vector<float>& matrix, size_t row, const Bounded& x) {
  double sum = 0;
  double sizes = 0;
  for (size_t k = 0; k < x.values.size(); ++k) {
    const double term = matrix[row * x.values.size() + k] * x.values[k];
    sum += term;
    sizes += std::fabs(term);
  }
  return {sum, sizes};
}

// The (expert, weight) pairs of a row.
std::vector<std::pair<size_t, double>> Choose(const Layer& layer,
                                              const Shape& shape,
                                              const Bounded& x) {
  std::vector<double> scores;
  for (size_t e = 0; e < shape.experts; ++e) scores.push_back(Dot(layer.router, e, x).first);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  const auto chosen = static_cast<size_t>(shape.per_token);
  // Else the device may rightly choose another expert: the test needs other numbers.
  if (chosen < order.size()) {
    EXPECT_GT(scores[order[chosen - 1]] - scores[order[chosen]], 1e-5);
  }
  double sum = 0;
  std::vector<std::pair<size_t, double>> pairs;
  for (size_t i = 0; i < chosen; ++i) {
    pairs.emplace_back(order[i], std::exp(scores[order[i]] - scores[order[0]]));
    sum += pairs.back().second;
  }
  for (auto& [expert, weight] : pairs) weight /= sum;
  return pairs;
}

// silu(gate x) · up x.
Bounded Inner(const Layer& layer, size_t expert, const Bounded& x, double sum_error) {
  Bounded inner;
  const size_t width = layer.gate[expert].size() / x.values.size();
  for (size_t k = 0; k < width; ++k) {
    const auto [gate, gate_sizes] = Dot(layer.gate[expert], k, x);
    const auto [up, up_sizes] = Dot(layer.up[expert], k, x);
    const double gate_error = sum_error * gate_sizes;
    const double up_error = sum_error * up_sizes;
    const double silu = gate / (1 + std::exp(-gate));
    constexpr double kSteepest = 1.1;  // of silu
    const double error = kSteepest * gate_error * (std::fabs(up) + up_error) +
                         std::fabs(silu) * up_error + 1e-5 * std::fabs(silu * up);
    inner.values.push_back(silu * up);
    inner.errors.push_back(error + kStored * (std::fabs(silu * up) + error));
  }
  return inner;
}

// A row in FP8. A number whose bounds E4M3 rounds to different numbers may become each of them.
Bounded Quantized(const Bounded& row) {
  double largest = 0;
  double largest_error = 0;
  for (size_t k = 0; k < row.values.size(); ++k) {
    largest = std::max(largest, std::fabs(row.values[k]));
    largest_error = std::max(largest_error, row.errors[k]);
  }
  const double scale = largest / 448;
  const auto rounded = [&](double value) {
    return scale *
           static_cast<double>(parity::Rounded(DType::kFp8, static_cast<float>(value / scale)));
  };
  Bounded quantized;
  for (size_t k = 0; k < row.values.size(); ++k) {
    // The scale of the device differs, too.
    const double of_scale = largest_error / largest;
    const double error = row.errors[k] + std::fabs(row.values[k]) * of_scale;
    const double value = rounded(row.values[k]);
    quantized.values.push_back(value);
    quantized.errors.push_back(
        std::max(rounded(row.values[k] + error) - value, value - rounded(row.values[k] - error)) +
        std::fabs(value) * of_scale);
  }
  return quantized;
}

// A row of the result.
Bounded Mixture(const Layer& layer, const Shape& shape, std::vector<float> row, bool wgmma) {
  Bounded x;
  x.values.assign(row.begin(), row.end());
  const auto pairs = Choose(layer, shape, x);
  if (wgmma) {
    row = InFp8(row, row.size());
    x.values.assign(row.begin(), row.end());
  }
  const double sum_error = wgmma ? kFp8Sum : kFloatSum;
  Bounded out;
  out.values.resize(row.size());
  out.errors.resize(row.size());
  std::vector<double> sizes(row.size());
  for (const auto& [expert, weight] : pairs) {
    Bounded inner = Inner(layer, expert, x, sum_error);
    if (wgmma) inner = Quantized(inner);
    for (size_t o = 0; o < row.size(); ++o) {
      const auto [sum, sum_sizes] = Dot(layer.down[expert], o, inner);
      double error = sum_error * sum_sizes;
      for (size_t k = 0; k < inner.values.size(); ++k) {
        error += std::fabs(layer.down[expert][o * inner.values.size() + k]) * inner.errors[k];
      }
      error += kStored * (std::fabs(sum) + error);
      out.values[o] += weight * sum;
      out.errors[o] += weight * (error + kExpertWeight * std::fabs(sum));
    }
  }
  for (size_t o = 0; o < row.size(); ++o) {
    out.errors[o] += kStored * (std::fabs(out.values[o]) + out.errors[o]);
  }
  return out;
}

class GpuFp8Experts : public testing::Test {
 protected:
  void SetUp() override {
    auto device = cuda::CudaDevice::Open(0);
    if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "experts in FP8 were NOT tested: " << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    if (!cuda::SupportsFp8(device_->properties()))
      GTEST_SKIP() << "no FP8 on this GPU: experts were NOT tested";
  }

  std::unique_ptr<Ops> MakeOps(bool deterministic) {
    auto ops = MakeCudaOps(
        *device_, cuda::TestedOptions({.deterministic = deterministic, .fp8_weights = true}));
    EXPECT_TRUE(ops.ok()) << ops.status();
    return *std::move(ops);
  }

  std::unique_ptr<cuda::CudaDevice> device_;
};

// Without wgmma, and where it is used.
constexpr Shape kShapes[] = {{8, 2, 256, 128, 1},
                             {6, 2, 64, 96, 9},
                             // Tails of every dimension of a tile,
                             {8, 2, 272, 48, 5},
                             // matrices of down that stay bf16,
                             {4, 4, 128, 24, 3},
                             {4, 2, 64, 72, 160},
                             // and large tiles.
                             {8, 2, 144, 80, 170},
                             {128, 8, 128, 128, 33},
                             {8, 2, 256, 128, 40},
                             // Tails, with a single span of inputs,
                             {8, 2, 384, 256, 300},
                             {4, 2, 128, 384, 700},
                             {4, 2, 640, 128, 150},
                             // one expert with all rows,
                             {1, 1, 128, 128, 400},
                             // and more rows than are computed at once.
                             {4, 2, 128, 128, 8300}};

TEST_F(GpuFp8Experts, ResultsAreThoseOfTheQuantizedNumbers) {
  for (const bool deterministic : {false, true}) {
    const auto ops = MakeOps(deterministic);
    for (const Shape& shape : kShapes) {
      const bool wgmma = UsesWgmma(shape, deterministic);
      SCOPED_TRACE(fmt::format("{} rows, {} of {} experts of {}×{}, deterministic {}, wgmma {}",
                               shape.rows,
                               shape.per_token,
                               shape.experts,
                               shape.width,
                               shape.hidden,
                               deterministic,
                               wgmma));
      const Layer layer(*ops, shape);
      const auto x = SpreadInputs(*ops, shape);
      const auto got = layer.Compute(*ops, shape, x);
      for (int64_t row = 0; row < shape.rows; row += 1 + shape.rows / 97) {
        const Bounded want =
            Mixture(layer,
                    shape,
                    {x.begin() + row * shape.hidden, x.begin() + (row + 1) * shape.hidden},
                    wgmma);
        for (size_t o = 0; o < want.values.size(); ++o) {
          ASSERT_NEAR(
              got[static_cast<size_t>(row * shape.hidden) + o], want.values[o], want.errors[o])
              << "row " << row << ", output " << o;
        }
      }
    }
  }
}

// Tiles of 16 and of 64 rows give the same bits.
TEST_F(GpuFp8Experts, DeterministicRowsDoNotDependOnTheBatch) {
  const auto ops = MakeOps(true);
  for (const Shape& shape : {Shape{5, 2, 64, 32, 300}, {5, 2, 272, 144, 300}}) {
    const Layer layer(*ops, shape);
    const auto x = SpreadInputs(*ops, shape);
    const auto all = layer.Compute(*ops, shape, x);
    for (const int64_t count : {1, 2, 3, 7, 64}) {
      for (const int64_t first : {int64_t{0}, int64_t{11}, shape.rows - count}) {
        const auto some = layer.Compute(
            *ops,
            shape,
            {x.begin() + first * shape.hidden, x.begin() + (first + count) * shape.hidden});
        EXPECT_EQ(std::memcmp(some.data(), all.data() + first * shape.hidden, some.size() * 4), 0)
            << count << " rows from " << first << " on by " << shape.width << "×" << shape.hidden;
      }
    }
  }
}

// With wgmma, a row's bits do not depend on its place among the rows.
TEST_F(GpuFp8Experts, RowsDoNotDependOnTheirPlaces) {
  const auto ops = MakeOps(false);
  const Shape shape{8, 2, 128, 256, 600};
  const Layer layer(*ops, shape);
  const auto x = SpreadInputs(*ops, shape);
  const auto turn = [&](std::vector<float> values) {
    std::rotate(values.begin(), values.begin() + shape.rows / 3 * shape.hidden, values.end());
    return values;
  };
  const auto want = turn(layer.Compute(*ops, shape, x));
  const auto got = layer.Compute(*ops, shape, turn(x));
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0);
}

}  // namespace
}  // namespace baton
