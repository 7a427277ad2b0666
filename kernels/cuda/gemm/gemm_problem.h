#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace baton::cuda {

// out[rows][n] (= or +=) x[rows][k] · weight[n][k]ᵀ (+ bias[n]), all row-major with float32 sums;
// `out` is bf16 or f32. Strides in elements. Operands are both bf16 or both E4M3, whose scales
// products that SkinnyGemmSupports or GatedGemmSupports apply, and others leave to the reader of
// `out`; or a weight in E4M3 with x in bf16, for products that GemvSupports, which apply
// weight_scales.
struct GemmProblem {
  const void* x = nullptr;
  const void* weight = nullptr;
  DType x_dtype = DType::kBF16;
  DType weight_dtype = DType::kBF16;
  const float* x_scales = nullptr;       // [rows]
  const float* weight_scales = nullptr;  // [n]
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::kBF16;
  int32_t rows = 0;
  int32_t n = 0;
  int32_t k = 0;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  bool accumulate = false;

  // Joined, for products that GemvSupports: what is multiplied is not x but the norm of `residual`
  // (RMS, times norm_weight).
  const float* residual = nullptr;  // [k]
  const float* norm_weight = nullptr;
  float norm_epsilon = 0;
  // Joined, for products that our own kernels take: of n = [gate | up] outputs silu(gate) · up is
  // kept.
  bool silu_mul = false;

  bool operator==(const GemmProblem&) const = default;
};

}  // namespace baton::cuda
