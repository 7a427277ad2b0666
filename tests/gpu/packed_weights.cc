#include "tests/gpu/packed_weights.h"

#include <cuda_runtime_api.h>

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/packed/pack_weights.h"
#include "kernels/cuda/packed/widen.h"

namespace baton::cuda::testing {
namespace {

void Check(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

template <class T>
void CopyIn(DeviceMemory& to, const std::vector<T>& from) {
  ASSERT_TRUE(to.Reserve(from.size() * sizeof(T)).ok());
  Check(cudaMemcpy(to.at(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

// Numbers of FP8 are between -1 and 1, and none is NaN.
std::vector<uint8_t> RandomNumbers(const PackedFormat& format, size_t bytes, std::mt19937& random) {
  std::vector<uint8_t> numbers(bytes);
  for (uint8_t& number : numbers) {
    number = static_cast<uint8_t>(random());
    if (format.number == DType::kFp8) number &= 0xb7;
  }
  return numbers;
}

// Such that weights are about 0.05.
std::vector<uint8_t> RandomScales(const PackedFormat& format, size_t count, std::mt19937& random) {
  std::vector<uint8_t> scales;
  for (size_t i = 0; i < count; ++i) {
    const auto any = static_cast<uint32_t>(random());
    if (format.scale == ScaleType::kE8m0) {
      scales.push_back(static_cast<uint8_t>(118 + any % 6));
    } else if (format.scale == ScaleType::kFp8) {
      scales.push_back(static_cast<uint8_t>(0x18 + any % 16));
    } else {
      // Both signs, and eight or nine bits of exponent and mantissa.
      const uint32_t first = format.has_bytes() && format.number == DType::kI8 ? 0x39c0 : 0x3c00;
      const uint32_t bits = (first + any % 128) | (any >> 20 & 0x8000);
      scales.push_back(static_cast<uint8_t>(bits & 0xff));
      scales.push_back(static_cast<uint8_t>(bits >> 8));
    }
  }
  return scales;
}

}  // namespace

PackedMatrix::PackedMatrix(const PackedFormat& format, int32_t rows, int32_t cols, bool factors)
    : format_(format), rows_(rows), cols_(cols) {
  std::mt19937 random(7);
  const int64_t groups = CeilDiv(cols, format.group);
  const int64_t row_bytes = format.has_bytes() ? cols : (cols + 1) / 2;
  DeviceMemory numbers;
  DeviceMemory scales;
  DeviceMemory zeros;
  CopyIn(numbers, RandomNumbers(format, static_cast<size_t>(rows * row_bytes), random));
  CopyIn(scales, RandomScales(format, static_cast<size_t>(rows * groups), random));
  if (format.zeros) {
    std::vector<uint8_t> points(static_cast<size_t>(rows * groups));
    for (uint8_t& point : points) {
      point = static_cast<uint8_t>(random() % (format.has_bytes() ? 256 : 16));
    }
    CopyIn(zeros, points);
  }
  if (factors) {
    std::vector<float> powers;
    for (int32_t row = 0; row < rows; ++row) powers.push_back(row % 3 == 0 ? 2.0f : 0.5f);
    CopyIn(factors_, powers);
  }
  const RawWeights raw = {.numbers = numbers.at(),
                          .scales = scales.at(),
                          .zeros = format.zeros ? zeros.at<uint8_t>() : nullptr,
                          .rows = rows,
                          .cols = cols,
                          .groups = groups};
  EXPECT_TRUE(packed_.Reserve(static_cast<size_t>(format.Bytes(rows, cols))).ok());
  Check(LaunchPack(raw, format, packed_.at(), nullptr));
  Check(cudaDeviceSynchronize());
}

PackedWeights PackedMatrix::weights() const {
  return {
      packed_.at(), format_, rows_, cols_, factors_.size() == 0 ? nullptr : factors_.at<float>()};
}

void PackedMatrix::Widen(const DeviceMemory& out) const {
  Check(LaunchWiden(weights(), 0, rows_, out.at<__nv_bfloat16>(), nullptr));
}

}  // namespace baton::cuda::testing
