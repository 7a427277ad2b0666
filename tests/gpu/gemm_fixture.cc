#include "tests/gpu/gemm_fixture.h"

#include <cmath>
#include <cstring>

#include "kernels/cuda/rows/quantize.h"
#include "tests/gpu/gemm_reference.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda::testing {
namespace {

void Check(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

void Reserve(DeviceMemory& memory, int64_t bytes) {
  ASSERT_TRUE(memory.Reserve(static_cast<size_t>(bytes)).ok());
}

void Fill(const DeviceMemory& memory, int64_t count, uint32_t seed, float scale) {
  Check(FillRandom(memory.at<__nv_bfloat16>(), count, seed, scale));
}

// Converts dense bf16 [rows][cols] to FP8 with a scale for each row.
void Quantize(const DeviceMemory& from, int32_t rows, int32_t cols, DeviceMemory& to) {
  Reserve(to, static_cast<int64_t>(Fp8Rows::Bytes(rows, cols)));
  Tensor tensor;
  tensor.data = from.at();
  tensor.dtype = DType::kBF16;
  tensor.rows = rows;
  tensor.cols = tensor.stride = cols;
  Check(LaunchQuantize(tensor, Fp8Rows::At(to.at(), rows, cols), nullptr));
}

}  // namespace

void PrintTo(const GemmCase& c, std::ostream* out) {
  *out << c.name;
}

void HopperTest::SetUp() {
  if (!HaveGpu() || !MayRun(KernelFamily::kHopper, TestedDevice())) {
    GTEST_SKIP() << "no GPU of sm_90 with code for it, or portable kernels alone: the Hopper GEMMs "
                    "were NOT tested";
  }
}

GemmFixture::GemmFixture(const GemmCase& c, int32_t max_rows) : case_(c), max_rows_(max_rows) {
  const int64_t weights = int64_t{c.n} * c.k;
  const int64_t inputs = max_rows * x_stride();
  Reserve(weight_, weights * 2);
  Reserve(x_, inputs * 2);
  Reserve(bias_, int64_t{c.n} * 2);
  Reserve(out_, static_cast<int64_t>(out_bytes()));
  Reserve(before_, static_cast<int64_t>(out_bytes()));
  Reserve(want_, int64_t{max_rows} * c.outputs() * 4);
  if (c.packed.is_packed()) {
    packed_weight_.emplace(c.packed, c.n, c.k, c.factors);
    packed_weight_->Widen(weight_);
  } else {
    Fill(weight_, weights, 1, 0.05f);
  }
  Fill(x_, inputs, 2, 1.0f);
  if (c.fp8) {
    Quantize(weight_, c.n, c.k, quantized_weight_);
    Quantize(x_, max_rows, c.k, quantized_x_);
  }
  Fill(bias_, c.n, 3, 1.0f);
  Fill(before_, static_cast<int64_t>(out_bytes() / 2), 4, 1.0f);
  device_ = TestedDevice();
}

GemmProblem GemmFixture::Make(int32_t rows) const {
  GemmProblem problem = MakeWidened(rows);
  if (packed_weight_) {
    const PackedWeights weights = packed_weight_->weights();
    problem.weight = weights.data;
    problem.weight_dtype = weights.format.number;
    problem.weight_scales = weights.factors;
    problem.packed = weights.format;
  }
  return problem;
}

GemmProblem GemmFixture::MakeWidened(int32_t rows) const {
  GemmProblem problem;
  problem.x = x_.at();
  problem.weight = weight_.at();
  problem.bias = case_.bias ? bias_.at<__nv_bfloat16>() : nullptr;
  problem.out = out_.at();
  problem.out_dtype = case_.f32 ? DType::kF32 : DType::kBF16;
  problem.rows = rows;
  problem.n = case_.n;
  problem.k = case_.k;
  problem.x_stride = x_stride();
  problem.out_stride = out_stride();
  problem.accumulate = case_.accumulate;
  problem.silu_mul = case_.silu_mul;
  if (case_.fp8) {
    const auto weight = Fp8Rows::At(quantized_weight_.at(), case_.n, case_.k);
    const auto x = Fp8Rows::At(quantized_x_.at(), max_rows_, case_.k);
    problem.weight = weight.data;
    problem.x = x.data;
    problem.x_stride = case_.k;
    problem.weight_dtype = problem.x_dtype = DType::kFp8;
    problem.weight_scales = weight.scales;
    problem.x_scales = x.scales;
  }
  return problem;
}

std::vector<std::byte> GemmFixture::Run(int32_t rows, const Launch& launch) {
  Check(cudaMemcpy(out_.at(), before_.at(), out_bytes(), cudaMemcpyDeviceToDevice));
  Check(launch(Make(rows)));
  Check(cudaDeviceSynchronize());
  return Fetch(out_);
}

const std::vector<float>& GemmFixture::Want(int32_t rows) {
  std::vector<float>& want = wants_[rows];
  if (!want.empty()) return want;
  Check(ReferenceGemm(MakeWidened(rows), before_.at(), want_.at<float>()));
  want.resize(static_cast<size_t>(rows) * static_cast<size_t>(case_.outputs()));
  Check(cudaMemcpy(want.data(), want_.at(), want.size() * 4, cudaMemcpyDeviceToHost));
  return want;
}

std::vector<std::byte> GemmFixture::Fetch(const DeviceMemory& memory) const {
  std::vector<std::byte> bytes(out_bytes());
  Check(cudaMemcpy(bytes.data(), memory.at(), bytes.size(), cudaMemcpyDeviceToHost));
  return bytes;
}

float GemmFixture::Number(std::span<const std::byte> out, int32_t row, int32_t output) const {
  const auto at = static_cast<size_t>(row * out_stride() + output) * number_bytes();
  uint32_t bits = 0;
  std::memcpy(
      case_.f32 ? reinterpret_cast<std::byte*>(&bits) : reinterpret_cast<std::byte*>(&bits) + 2,
      out.data() + at,
      number_bytes());
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

void GemmFixture::ExpectRepeats(int32_t rows, const Launch& launch) {
  const std::vector<std::byte> first = Run(rows, launch);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Run(rows, launch), first) << rows << " rows";
}

void GemmFixture::ExpectSameBits(int32_t rows, const Launch& launch, const Launch& other) {
  const std::vector<std::byte> all = Run(max_rows_, other);
  const std::vector<std::byte> some = Run(rows, launch);
  const size_t bytes = static_cast<size_t>(rows * out_stride()) * number_bytes();
  EXPECT_EQ(std::memcmp(all.data(), some.data(), bytes), 0) << rows << " rows";
}

void GemmFixture::Expect(int32_t rows, const Launch& launch) {
  const std::vector<float>& want = Want(rows);
  const std::vector<std::byte> before = Fetch(before_);
  const std::vector<std::byte> got = Run(rows, launch);
  double error = 0;
  double norm = 0;
  size_t i = 0;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t output = 0; output < case_.outputs(); ++output, ++i) {
      error += std::pow(Number(got, row, output) - want[i], 2);
      norm += std::pow(want[i], 2);
    }
  }
  // bf16 rounds results to 2^-9. Tensor cores truncate when they accumulate; with FP8 operands,
  // they keep 14 bits of the largest term.
  const double sums = case_.fp8 ? 5e-3 : 1e-4;
  EXPECT_LT(std::sqrt(error / norm), case_.f32 ? sums : 4e-3) << rows << " rows";

  for (int32_t row = 0; row < max_rows_; ++row) {
    const int32_t written = row < rows ? case_.outputs() : 0;
    const auto from = static_cast<size_t>(row * out_stride() + written);
    const auto to = static_cast<size_t>((row + 1) * out_stride());
    ASSERT_EQ(std::memcmp(got.data() + from * number_bytes(),
                          before.data() + from * number_bytes(),
                          (to - from) * number_bytes()),
              0)
        << "row " << row << " of " << rows << ": memory after the row's end was overwritten";
  }
}

}  // namespace baton::cuda::testing
