#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/packed/packed_format.h"
#include "kernels/dtype.h"

namespace baton::cuda {

// out[rows][n] (= or +=) x[rows][k] · weight[n][k]ᵀ (+ bias[n]). Matrices are row-major, strides
// are in elements, accumulators are float32; `out` is bf16 or f32. The operands are one of:
//   both bf16;
//   both FP8: the skinny and the gated GEMM apply the scales, and cuBLASLt where it gets them
//   (Gemm::AppliesScales); else they are null, and the reader of `out` must apply them;
//   a weight in FP8 and x in bf16: only for the GEMV (KernelId::kGemv), which applies
//   weight_scales;
//   a packed weight (packed_format.h) and x in bf16: weight_scales are the factors of its outputs,
//   null where these are 1.
struct GemmProblem {
  const void* x = nullptr;
  const void* weight = nullptr;
  DType x_dtype = DType::kBF16;
  DType weight_dtype = DType::kBF16;
  const float* x_scales = nullptr;       // [rows]
  const float* weight_scales = nullptr;  // [n]
  PackedFormat packed = {};              // of the weight, if it is packed
  // Memory of WidenedBytes for a packed weight in bf16; null where the kernel needs none.
  std::byte* widened = nullptr;
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::kBF16;
  int32_t rows = 0;
  int32_t n = 0;
  int32_t k = 0;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  bool accumulate = false;

  // Fused RMS norm, for the GEMV only: with norm_weight, the input is not x but the RMS norm of
  // `residual`, times norm_weight.
  const float* residual = nullptr;  // [k]
  const float* norm_weight = nullptr;
  float norm_epsilon = 0;
  // Fused activation, for our own kernels only: the n outputs are [gate | up], and `out` receives
  // the n / 2 values silu(gate) · up.
  bool silu_mul = false;

  bool operator==(const GemmProblem&) const = default;
};

inline size_t WeightBytes(const GemmProblem& problem) {
  return static_cast<size_t>(problem.n) *
         RowBytes(problem.weight_dtype, static_cast<size_t>(problem.k));
}

// The most outputs of a packed weight that are in bf16 at a time: those of about 64 MiB.
inline int32_t WidenedOutputs(const GemmProblem& problem) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t fit = kBytes / (int64_t{problem.k} * 2) / kTileOutputs * kTileOutputs;
  return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(fit, kTileOutputs), problem.n));
}
inline int64_t WidenedBytes(const GemmProblem& problem) {
  return int64_t{WidenedOutputs(problem)} * problem.k * 2;
}

// The bytes of the first `rows` rows of `out`.
inline size_t OutBytes(const GemmProblem& problem, int32_t rows) {
  return static_cast<size_t>(rows * problem.out_stride) * ShapeOf(problem.out_dtype).bytes;
}

// `problem` for rows `first` … `first` + `rows` - 1 alone.
inline GemmProblem RowsOf(GemmProblem problem, int64_t first, int64_t rows) {
  const auto x_bytes =
      first * problem.x_stride * static_cast<int64_t>(ShapeOf(problem.x_dtype).bytes);
  problem.x = static_cast<const std::byte*>(problem.x) + x_bytes;
  problem.out =
      static_cast<std::byte*>(problem.out) + OutBytes(problem, static_cast<int32_t>(first));
  if (problem.x_scales != nullptr) problem.x_scales += first;
  problem.rows = static_cast<int32_t>(rows);
  return problem;
}

}  // namespace baton::cuda
