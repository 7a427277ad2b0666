#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

// Numbers in E4M3 (fp8.cuh) with a scale for each row: products of two such matrices run on tensor
// cores at twice the rate of bf16, and read half the bytes.
namespace baton::cuda {

// A matrix [rows][cols] without gaps; number (i, j) stands for data[i][j] · scales[i].
struct Fp8Rows {
  std::byte* data = nullptr;
  float* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  // From the start of the data to that of the scales, when they share memory.
  static size_t ScalesOffset(int64_t rows, int64_t cols) {
    return (static_cast<size_t>(rows * cols) + 255) / 256 * 256;
  }
  static size_t Bytes(int64_t rows, int64_t cols) {
    return ScalesOffset(rows, cols) + static_cast<size_t>(rows) * sizeof(float);
  }
  static Fp8Rows At(std::byte* memory, int64_t rows, int64_t cols) {
    return {memory, reinterpret_cast<float*>(memory + ScalesOffset(rows, cols)), rows, cols};
  }
  bool operator==(const Fp8Rows&) const = default;
};

// What a product of two quantised matrices leaves to its reader: number (i, j) stands for
// value · rows[i] · cols[j]. Null: nothing.
struct OutputScales {
  const float* rows = nullptr;
  const float* cols = nullptr;
  bool operator==(const OutputScales&) const = default;
};

// Each row over its largest number, so that this becomes the largest of E4M3. `x` is bf16.
cudaError_t LaunchQuantize(const Tensor& x, const Fp8Rows& out, cudaStream_t stream);

// Kernels that keep a row in registers quantise it on the way out: rows of up to so many numbers,
// in whole groups of 8.
inline constexpr int64_t kMaxFp8Columns = 16384;

// out = silu(gate) · up of `gate_up` = [gate | up] after `scales`; out.cols % 8 == 0 and at most
// kMaxFp8Columns.
cudaError_t LaunchSiluMulQuantize(const Tensor& gate_up,
                                  const OutputScales& scales,
                                  const Fp8Rows& out,
                                  cudaStream_t stream);

// x = x · scales + bias (when there is one), in place; x is bf16 or f32.
cudaError_t LaunchRescale(const Tensor& x,
                          const OutputScales& scales,
                          const __nv_bfloat16* bias,
                          cudaStream_t stream);

}  // namespace baton::cuda
