#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

// Matrices in FP8 (fp8.cuh) with a scale for each row. GEMMs of two such matrices run on tensor
// cores at twice the rate of bf16, and read half the bytes.
namespace baton::cuda {

// A matrix [rows][cols] without gaps; number (i, j) stands for data[i][j] · scales[i].
struct Fp8Rows {
  std::byte* data = nullptr;
  float* scales = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  // Bytes from the start of the data to the start of the scales, when both are in one allocation.
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

// The scales that a GEMM of two FP8 matrices did not apply and its reader must: number (i, j) of
// the result stands for value · rows[i] · cols[j]. Null: the result is final.
struct OutputScales {
  const float* rows = nullptr;
  const float* cols = nullptr;
  bool operator==(const OutputScales&) const = default;
};

// Converts bf16 `x` to FP8. Each row's scale makes its largest magnitude the largest number of
// E4M3.
cudaError_t LaunchQuantize(const Tensor& x, const Fp8Rows& out, cudaStream_t stream);

// Kernels that hold a row in registers can write it in FP8 if its length is at most this, and a
// multiple of 8.
inline constexpr int64_t kMaxFp8Columns = 16384;

// out = silu(gate) · up, with [gate | up] = gate_up · scales. out.cols is a multiple of 8 and at
// most kMaxFp8Columns.
cudaError_t LaunchSiluMulQuantize(const Tensor& gate_up,
                                  const OutputScales& scales,
                                  const Fp8Rows& out,
                                  cudaStream_t stream);

// x = x · scales + bias, in place; x is bf16 or f32, `bias` may be null.
cudaError_t LaunchRescale(const Tensor& x,
                          const OutputScales& scales,
                          const __nv_bfloat16* bias,
                          cudaStream_t stream);

}  // namespace baton::cuda
