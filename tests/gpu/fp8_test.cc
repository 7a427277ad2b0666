#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/rows/quantize.h"
#include "tests/gpu/fp8_numbers.h"
#include "tests/gpu/test_device.h"
#include "tests/parity/device_tensor.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/step_plan.h"

// Compares GEMMs with FP8 weights with simple loops over the numbers that E4M3 can represent.
namespace baton {
namespace {

using cuda::testing::InFp8;
using cuda::testing::Quantizable;
using cuda::testing::Quantize;
using cuda::testing::QuantizedRow;
using parity::DeviceTensor;
using parity::HostWeights;
using parity::InStep;

float FromFp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const float fraction = static_cast<float>(bits & 7) / 8;
  const float size =
      exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return bits >> 7 != 0 ? -size : size;
}

class GpuFp8 : public testing::Test {
 protected:
  void SetUp() override {
    auto device = cuda::CudaDevice::Open(0);
    if (!device.ok() && device.status().code() == StatusCode::kNotFound) {
      GTEST_SKIP() << "GEMMs in FP8 were NOT tested: " << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    if (!cuda::SupportsFp8(device_->properties()))
      GTEST_SKIP() << "no FP8 on this GPU: GEMMs were NOT tested";
  }

  std::unique_ptr<Ops> MakeOps(bool deterministic) {
    auto ops = MakeCudaOps(
        *device_, cuda::TestedOptions({.deterministic = deterministic, .fp8_weights = true}));
    EXPECT_TRUE(ops.ok()) << ops.status();
    return *std::move(ops);
  }

  std::unique_ptr<cuda::CudaDevice> device_;
};

TEST_F(GpuFp8, RowsAreQuantizedOverTheirLargestNumber) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 16},
                                   {3, 100},
                                   {5, 576},
                                   {2, 4096},
                                   {3, 4104},
                                   {4, 14336},
                                   {2, 16384},
                                   {2, 20000}}) {
    SCOPED_TRACE(fmt::format("{}x{}", rows, cols));
    auto values = parity::RandomFloats(static_cast<size_t>(rows * cols), 5, 3.0f);
    for (float& value : values) value = parity::Rounded(DType::kBF16, value);
    std::fill_n(values.begin(), cols, 0.0f);  // a row of zeros
    if (rows > 1) values[static_cast<size_t>(cols) + 3] = 0x1p66f;
    const auto ops = MakeOps(false);
    const DeviceTensor x(*ops, rows, cols, values);
    cuda::DeviceMemory memory;
    ASSERT_TRUE(memory.Reserve(cuda::Fp8Rows::Bytes(rows, cols)).ok());
    const auto out = cuda::Fp8Rows::At(memory.at(), rows, cols);
    ASSERT_EQ(cuda::LaunchQuantize(x.view(), out, cudaStreamLegacy), cudaSuccess);
    std::vector<uint8_t> bits(values.size());
    std::vector<float> scales(static_cast<size_t>(rows));
    ASSERT_EQ(cudaMemcpy(bits.data(), out.data, bits.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(scales.data(), out.scales, scales.size() * 4, cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (size_t row = 0; row < scales.size(); ++row) {
      const size_t at = row * static_cast<size_t>(cols);
      const QuantizedRow want = Quantize(values.data() + at, static_cast<size_t>(cols));
      ASSERT_EQ(scales[row], want.scale) << row;
      for (size_t i = 0; i < want.values.size(); ++i) {
        ASSERT_EQ(FromFp8(bits[at + i]), want.values[i]) << "row " << row << ", column " << i;
      }
    }
  }
}

struct Shape {
  int64_t outputs, inputs, rows;
};
// On Hopper, a single row whose number of inputs is a multiple of 512 stays bf16; other inputs
// become FP8.
constexpr Shape kShapes[] = {{16, 16, 1},
                             {16, 16, 2},
                             {48, 64, 5},
                             {112, 576, 1},
                             {1536, 576, 67},
                             {32, 512, 1},
                             {6144, 1024, 1},
                             {4096, 1536, 1},
                             {256, 14336, 1},
                             {256, 14336, 3},
                             {48, 128, 2},
                             {112, 1152, 33},
                             {2048, 2048, 16},
                             {6144, 1024, 64},
                             {28672, 256, 8},
                             {1024, 1024, 130},
                             {1024, 512, 1300}};

bool KeepsInputs(const Shape& shape, bool deterministic) {
  return cuda::MayRun(cuda::KernelFamily::kHopper, cuda::TestedDevice()) && !deterministic &&
         shape.rows == 1 && shape.inputs % 512 == 0;
}

// Tolerance for the tensor cores, which accumulate FP8 with few bits, relative to the sum of the
// terms' absolute values.
constexpr double kSumBound = 1e-3;
constexpr double kStored = 0x1p-8;

TEST_F(GpuFp8, ProductsAreThoseOfTheQuantizedNumbers) {
  for (const bool deterministic : {false, true}) {
    const auto ops = MakeOps(deterministic);
    for (const Shape& shape : kShapes) {
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows by {}×{}, bias {}, deterministic {}",
                                 shape.rows,
                                 shape.outputs,
                                 shape.inputs,
                                 with_bias,
                                 deterministic));
        const auto inputs = static_cast<size_t>(shape.inputs);
        const auto outputs = static_cast<size_t>(shape.outputs);
        HostWeights host = parity::HeldBy(
            *ops, parity::RandomWeights(DType::kBF16, shape.outputs, shape.inputs, 6));
        const HostMatrix part = Quantizable(host);
        const auto matrix = ops->LoadMatrix({&part, 1});
        ASSERT_TRUE(matrix.ok()) << matrix.status();
        EXPECT_EQ((*matrix)->bytes(), cuda::Fp8Rows::Bytes(shape.outputs, shape.inputs));
        const std::vector<float> weights = InFp8(host.values, inputs);
        const auto given =
            parity::RandomActivations(*ops, inputs * static_cast<size_t>(shape.rows), 7, 2.0f);
        const std::vector<float> x =
            KeepsInputs(shape, deterministic) ? given : InFp8(given, inputs);
        const auto bias = parity::RandomActivations(*ops, outputs, 8);
        const auto bias_vector = *ops->LoadVector(bias);
        const DeviceTensor in(*ops, shape.rows, shape.inputs, given);
        const DeviceTensor out(*ops, shape.rows, shape.outputs);
        InStep(*ops, [&] {
          ops->MatMul(in.view(), **matrix, with_bias ? bias_vector.get() : nullptr, out.view());
        });
        const auto got = out.Read();
        for (size_t row = 0; row < static_cast<size_t>(shape.rows); ++row) {
          for (size_t output = 0; output < outputs; output += 1 + outputs / 97) {
            double sum = 0;
            double sizes = 0;
            for (size_t i = 0; i < inputs; ++i) {
              const double term =
                  static_cast<double>(weights[output * inputs + i]) * x[row * inputs + i];
              sum += term;
              sizes += std::fabs(term);
            }
            const double want = sum + (with_bias ? bias[output] : 0.0f);
            ASSERT_NEAR(got[row * outputs + output],
                        want,
                        kSumBound * sizes + kStored * (std::fabs(sum) + std::fabs(want)))
                << "row " << row << ", output " << output;
          }
        }
      }
    }
  }
}

// An MLP between two norms, as a decoder issues it.
class GpuFp8Mlp : public GpuFp8 {
 protected:
  // Returns the residual after the MLP. Ops can be fused when they are in one step: from op
  // `joined` on, of the four, they are.
  std::vector<float> Run(Ops& ops, int64_t rows, int64_t hidden, int64_t width, size_t joined) {
    const auto load = [&](int64_t outputs, int64_t inputs, uint64_t seed) {
      return parity::RandomWeights(DType::kBF16, outputs, inputs, seed);
    };
    const HostWeights gate = load(width, hidden, 1);
    const HostWeights up = load(width, hidden, 2);
    const HostWeights back = load(hidden, width, 3);
    const HostMatrix back_part = Quantizable(back);
    const auto gate_up = *ops.LoadGateUp(Quantizable(gate), Quantizable(up));
    const auto down = *ops.LoadMatrix({&back_part, 1});
    const auto norm = *ops.LoadVector(parity::RandomFloats(static_cast<size_t>(hidden), 4));
    const auto count = static_cast<size_t>(rows * hidden);
    x_ = parity::RandomFloats(count, 5, 3.0f);
    first_ = parity::RandomActivations(ops, count, 6);
    DeviceTensor residual(ops, DType::kF32, rows, hidden);
    residual.Write(x_);
    const DeviceTensor delta(ops, rows, hidden, first_);
    const DeviceTensor normed(ops, rows, hidden);
    const DeviceTensor between(ops, rows, width);
    const std::vector<std::function<void()>> parts = {
        [&] { ops.AddRmsNorm(residual.view(), delta.view(), *norm, 1e-5f, normed.view()); },
        [&] { ops.MatMulSiluMul(normed.view(), *gate_up, nullptr, between.view()); },
        [&] { ops.MatMul(between.view(), *down, nullptr, delta.view()); },
        [&] { ops.AddRmsNorm(residual.view(), delta.view(), *norm, 1e-5f, normed.view()); },
    };
    for (size_t i = 0; i < joined; ++i) InStep(ops, parts[i]);
    InStep(ops, [&] {
      for (size_t i = joined; i < parts.size(); ++i) parts[i]();
    });
    return residual.Read();
  }

  std::vector<float> x_;      // the residual before
  std::vector<float> first_;  // what the first norm adds
};

TEST_F(GpuFp8Mlp, JoinedOpsAgreeWithSingleOnes) {
  for (const int64_t rows : {1, 2, 20, 64, 200, 1100}) {
    for (const auto& [hidden, intermediate] :
         {std::pair<int64_t, int64_t>{512, 1024}, {576, 1536}, {1024, 6144}}) {
      SCOPED_TRACE(fmt::format("{} rows, {} and {}", rows, hidden, intermediate));
      const auto ops = MakeOps(false);
      const auto apart = Run(*ops, rows, hidden, intermediate, 3);
      const auto together = Run(*ops, rows, hidden, intermediate, 0);
      double error = 0;
      double size = 0;
      for (size_t i = 0; i < apart.size(); ++i) {
        error += std::pow(together[i] - apart[i], 2);
        size += std::pow(apart[i] - x_[i] - first_[i], 2);
      }
      // Fused ops do not round some intermediate numbers to bf16. A few of these numbers then round
      // to another E4M3 number, in both GEMMs.
      EXPECT_LT(std::sqrt(error / size), 0.06);
    }
  }
}

// Tensor ranks exchange the activations between these ops, which then cannot be fused.
TEST_F(GpuFp8Mlp, DeterministicJoinedOpsGiveTheBitsOfSingleOnes) {
  for (const int64_t rows : {1, 20, 64, 200, 1100}) {
    SCOPED_TRACE(fmt::format("{} rows", rows));
    const auto ops = MakeOps(true);
    EXPECT_EQ(Run(*ops, rows, 1024, 6144, 1), Run(*ops, rows, 1024, 6144, 3));
  }
}

TEST_F(GpuFp8, DeterministicRowsDoNotDependOnTheBatch) {
  const auto ops = MakeOps(true);
  for (const auto& [outputs, inputs] :
       {std::pair<int64_t, int64_t>{160, 512}, {4096, 4096}, {512, 1536}}) {
    const HostWeights a = parity::RandomWeights(DType::kBF16, outputs, inputs, 1);
    const HostWeights b = parity::RandomWeights(DType::kBF16, outputs, inputs, 2);
    const HostMatrix part = Quantizable(a);
    const auto matrix = *ops->LoadMatrix({&part, 1});
    const auto gate_up = *ops->LoadGateUp(Quantizable(a), Quantizable(b));
    constexpr int64_t kRows = 135;
    const auto x = parity::RandomActivations(*ops, static_cast<size_t>(kRows * inputs), 3);
    for (const bool pairs : {false, true}) {
      const auto run = [&, inputs = inputs, outputs = outputs](int64_t first, int64_t count) {
        const DeviceTensor in(*ops,
                              count,
                              inputs,
                              {x.begin() + first * inputs, x.begin() + (first + count) * inputs});
        const DeviceTensor out(*ops, count, outputs);
        InStep(*ops, [&] {
          if (pairs) {
            ops->MatMulSiluMul(in.view(), *gate_up, nullptr, out.view());
          } else {
            ops->MatMul(in.view(), *matrix, nullptr, out.view());
          }
        });
        return out.Read();
      };
      const auto all = run(0, kRows);
      for (const int64_t count : {1, 2, 7, 64}) {
        const auto some = run(11, count);
        EXPECT_EQ(std::memcmp(some.data(), all.data() + 11 * outputs, some.size() * 4), 0)
            << count << " rows by " << outputs << "×" << inputs << (pairs ? ", pairs" : "");
      }
    }
  }
}

// The numbers and the scales of an FP8 matrix.
struct HeldFp8 {
  std::vector<uint8_t> numbers;
  std::vector<float> scales;
};

HeldFp8 Held(const Matrix& matrix) {
  const cuda::Fp8Rows rows = static_cast<const cuda::CudaMatrix&>(matrix).fp8();
  HeldFp8 held;
  held.numbers.resize(static_cast<size_t>(rows.rows * rows.cols));
  held.scales.resize(static_cast<size_t>(rows.rows));
  EXPECT_EQ(cudaMemcpy(held.numbers.data(), rows.data, held.numbers.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(
      cudaMemcpy(held.scales.data(), rows.scales, held.scales.size() * 4, cudaMemcpyDeviceToHost),
      cudaSuccess);
  return held;
}

// The scale of a weight's row is that of the whole row, also for a part of the columns.
TEST_F(GpuFp8, APartHasTheNumbersOfTheWhole) {
  const auto ops = MakeOps(false);
  constexpr int64_t kCols = 96;
  HostWeights host = parity::RandomWeights(DType::kBF16, 64, kCols, 1);
  // The largest number of each row, 32, is not in the part.
  constexpr uint16_t kLargest = 0x4200;
  for (int64_t row = 0; row < host.rows; ++row) {
    std::memcpy(host.bytes.data() + RowBytes(DType::kBF16, row * kCols), &kLargest, 2);
  }
  const HostMatrix whole = Quantizable(host);
  HostMatrix part = whole;
  part.rows = 32;
  part.cols = 48;
  part.first_row = 16;
  part.first_col = 32;
  part.whole_cols = kCols;
  part.data = whole.Row(16) + RowBytes(DType::kBF16, 32);
  const auto whole_matrix = *ops->LoadMatrix({&whole, 1});
  const auto part_matrix = *ops->LoadMatrix({&part, 1});
  ASSERT_EQ(part_matrix->bytes(), cuda::Fp8Rows::Bytes(part.rows, part.cols));
  const HeldFp8 want = Held(*whole_matrix);
  const HeldFp8 got = Held(*part_matrix);
  for (int64_t row = 0; row < part.rows; ++row) {
    EXPECT_EQ(got.scales[static_cast<size_t>(row)], want.scales[static_cast<size_t>(row) + 16]);
    EXPECT_EQ(std::memcmp(got.numbers.data() + row * part.cols,
                          want.numbers.data() + (row + 16) * kCols + 32,
                          static_cast<size_t>(part.cols)),
              0)
        << "row " << row;
  }
}

TEST_F(GpuFp8, WeightsThatMayNotBeAreNotQuantized) {
  const auto ops = MakeOps(false);
  const HostWeights host = parity::RandomWeights(DType::kBF16, 64, 64, 1);
  const HostMatrix kept = host.matrix();
  EXPECT_EQ((*ops->LoadMatrix({&kept, 1}))->bytes(), 64u * 64 * 2);
  // Sizes that the tensor cores do not support in FP8.
  const HostWeights odd = parity::RandomWeights(DType::kBF16, 60, 72, 1);
  const HostMatrix part = Quantizable(odd);
  EXPECT_EQ((*ops->LoadMatrix({&part, 1}))->bytes(), 60u * 72 * 2);
}

}  // namespace
}  // namespace baton
