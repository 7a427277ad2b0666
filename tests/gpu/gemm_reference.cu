#include <cuda_fp8.h>

#include "tests/gpu/gemm_reference.h"
#include "tests/gpu/random_number.cuh"

namespace baton::cuda::testing {
namespace {

__global__ void FillKernel(__nv_bfloat16* to, int64_t count, uint32_t seed, float scale) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = __float2bfloat16(NumberOf((uint64_t{seed} << 40) ^ static_cast<uint64_t>(i)) * scale);
  }
}

__device__ const __nv_bfloat16* Numbers(const void* operand) {
  return static_cast<const __nv_bfloat16*>(operand);
}

__device__ float Quantized(const void* operand, int64_t at) {
  __nv_fp8_e4m3 number;
  number.__x = static_cast<const uint8_t*>(operand)[at];
  return static_cast<float>(number);
}

__device__ float Dot(const GemmProblem& p, int row, int line) {
  const int64_t input = row * p.x_stride;
  const int64_t weight = int64_t{line} * p.k;
  float sum = 0;
  if (p.weight_dtype == DType::kFp8) {
    for (int i = 0; i < p.k; ++i) {
      sum = fmaf(Quantized(p.x, input + i), Quantized(p.weight, weight + i), sum);
    }
    return sum * p.x_scales[row] * p.weight_scales[line];
  }
  for (int i = 0; i < p.k; ++i) {
    float x = __bfloat162float(Numbers(p.x)[input + i]);
    if (p.norm_weight != nullptr) x *= p.norm_weight[i];
    sum = fmaf(x, __bfloat162float(Numbers(p.weight)[weight + i]), sum);
  }
  return sum;
}

// Grid [outputs / 128][rows].
__global__ void ReferenceGemmKernel(GemmProblem p, const void* before, float* out, int outputs) {
  const int row = static_cast<int>(blockIdx.y);
  const int output = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (output >= outputs) return;
  float scale = 1;
  if (p.norm_weight != nullptr) {
    float squares = 0;
    for (int i = 0; i < p.k; ++i) {
      const float x = __bfloat162float(Numbers(p.x)[row * p.x_stride + i]);
      squares = fmaf(x, x, squares);
    }
    scale = rsqrtf(squares / static_cast<float>(p.k) + p.norm_epsilon);
  }
  float value = Dot(p, row, output) * scale;
  if (p.silu_mul) value = value / (1 + expf(-value)) * Dot(p, row, outputs + output) * scale;
  if (p.bias != nullptr) value += __bfloat162float(p.bias[output]);
  if (p.accumulate) {
    const int64_t at = row * p.out_stride + output;
    value += p.out_dtype == DType::kF32
                 ? static_cast<const float*>(before)[at]
                 : __bfloat162float(static_cast<const __nv_bfloat16*>(before)[at]);
  }
  out[int64_t{row} * outputs + output] = value;
}

}  // namespace

cudaError_t FillRandom(__nv_bfloat16* to, int64_t count, uint32_t seed, float scale) {
  FillKernel<<<1056, 256>>>(to, count, seed, scale);
  return cudaGetLastError();
}

cudaError_t ReferenceGemm(const GemmProblem& problem, const void* before, float* out) {
  const int outputs = problem.silu_mul ? problem.n / 2 : problem.n;
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((outputs + kThreads - 1) / kThreads),
                  static_cast<unsigned>(problem.rows));
  ReferenceGemmKernel<<<grid, kThreads>>>(problem, before, out, outputs);
  return cudaGetLastError();
}

}  // namespace baton::cuda::testing
