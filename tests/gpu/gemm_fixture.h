#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/gemm/gemm_problem.h"
#include "tests/gpu/packed_weights.h"

namespace baton::cuda::testing {

// The shape and options of the GEMMs that one test case runs.
struct GemmCase {
  const char* name = "";
  int32_t n = 0;
  int32_t k = 0;
  bool silu_mul = false;
  bool bias = false;
  bool accumulate = false;
  bool f32 = false;
  int32_t x_gap = 0;         // numbers between two rows of x
  int32_t out_gap = 0;       // numbers between two rows of `out`
  bool fp8 = false;          // operands are in FP8
  PackedFormat packed = {};  // the weight is packed
  bool factors = false;      // outputs of the packed weight have factors

  int32_t outputs() const { return silu_mul ? n / 2 : n; }
};

void PrintTo(const GemmCase& c, std::ostream* out);

// Base of the tests of Hopper kernels. Skips the test, with a message, when there is no Hopper GPU.
class HopperTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

// A GEMM on the device, with random operands.
class GemmFixture final {
 public:
  using Launch = std::function<cudaError_t(const GemmProblem&)>;

  GemmFixture(const GemmCase& c, int32_t max_rows);

  GemmProblem Make(int32_t rows) const;
  const DeviceProperties& device() const { return device_; }
  int sm_count() const { return device_.sm_count; }
  // Expects `launch` to compute the GEMM of `rows` rows, and to write nothing else.
  void Expect(int32_t rows, const Launch& launch);
  // Expects `launch` to give the same bits in each of several runs.
  void ExpectRepeats(int32_t rows, const Launch& launch);
  // Expects the bits of `launch` with `rows` rows to be those of `other` with max_rows rows.
  void ExpectSameBits(int32_t rows, const Launch& launch, const Launch& other);

 private:
  // Runs `launch`; returns all bytes of `out`, with the gaps between its rows.
  std::vector<std::byte> Run(int32_t rows, const Launch& launch);
  const std::vector<float>& Want(int32_t rows);
  // Make with a packed weight in bf16.
  GemmProblem MakeWidened(int32_t rows) const;
  std::vector<std::byte> Fetch(const DeviceMemory& memory) const;
  float Number(std::span<const std::byte> out, int32_t row, int32_t output) const;
  size_t number_bytes() const { return case_.f32 ? 4 : 2; }
  int64_t x_stride() const { return case_.k + case_.x_gap; }
  int64_t out_stride() const { return case_.outputs() + case_.out_gap; }
  size_t out_bytes() const {
    return static_cast<size_t>(max_rows_ * out_stride()) * number_bytes();
  }

  const GemmCase case_;
  const int32_t max_rows_;
  DeviceProperties device_;
  DeviceMemory weight_;  // in bf16, as the other two have it
  std::optional<PackedMatrix> packed_weight_;
  DeviceMemory quantized_weight_;
  DeviceMemory quantized_x_;
  DeviceMemory x_;
  DeviceMemory bias_;
  DeviceMemory out_;
  DeviceMemory before_;
  DeviceMemory want_;
  std::map<int32_t, std::vector<float>> wants_;  // by rows
};

}  // namespace baton::cuda::testing
