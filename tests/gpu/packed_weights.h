#pragma once

#include <cstdint>

#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/packed/packed_format.h"

namespace baton::cuda::testing {

// A packed matrix [rows][cols] of random numbers, scales and zero points, on the device.
class PackedMatrix final {
 public:
  // With `factors`, outputs have factors, which are powers of two, so that the widened weights
  // (Widen) are exact.
  PackedMatrix(const PackedFormat& format, int32_t rows, int32_t cols, bool factors);

  PackedWeights weights() const;
  // Writes the weights in bf16, [rows][cols], to `out`.
  void Widen(const DeviceMemory& out) const;

 private:
  const PackedFormat format_;
  const int32_t rows_;
  const int32_t cols_;
  DeviceMemory packed_;
  DeviceMemory factors_;  // empty: none
};

}  // namespace baton::cuda::testing
