#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/packed/packed_format.h"

namespace baton::cuda {

// A matrix as it is in a file, on the device: row-major, with the scale and the zero point of each
// output's groups. The types are those of the packed matrix.
struct RawWeights {
  const std::byte* numbers = nullptr;  // rows of ⌈bits · cols / 8⌉ bytes; kI8 as signed integers
  const std::byte* scales = nullptr;  // [rows][groups]
  const uint8_t* zeros = nullptr;     // [rows][groups]; null where the format has none
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t groups = 0;  // ⌈cols / group⌉
};

// Writes the packed matrix to `to`, which has format.Bytes(rows, cols). Outputs and inputs that the
// matrix does not have are weights of 0.
cudaError_t LaunchPack(const RawWeights& raw,
                       const PackedFormat& format,
                       std::byte* to,
                       cudaStream_t stream);

}  // namespace baton::cuda
