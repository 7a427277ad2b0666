#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/activation_norm.h"
#include "kernels/cuda/rows/row_threads.h"

namespace baton::cuda {
namespace {

struct ActivationNormArguments {
  const __nv_bfloat16* x;
  int64_t x_stride;
  const float* weight;
  float epsilon;
  __nv_bfloat16* out;
  int64_t out_stride;
  int cols;
};

__device__ float ScaleOf(float squares, const ActivationNormArguments& a) {
  const float sum = ReduceOverBlock(squares, 0.0f, [](float part) { return SumOverWarp(part); });
  return rsqrtf(sum / static_cast<float>(a.cols) + a.epsilon);
}

// The numbers of a row are read twice: a second time from the L2 cache.
__global__ void VectorsNormKernel(ActivationNormArguments a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* const x = a.x + blockIdx.x * a.x_stride;
  __nv_bfloat16* const out = a.out + blockIdx.x * a.out_stride;
  const int first = static_cast<int>(threadIdx.x) * 8;
  const int step = static_cast<int>(blockDim.x) * 8;
  float squares = 0;
  for (int i = first; i < a.cols; i += step) {
    float values[8];
    Read8(x + i, values);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[j] * values[j];
  }
  const float scale = ScaleOf(squares, a);
  for (int i = first; i < a.cols; i += step) {
    float values[8];
    float weight[8];
    Read8(x + i, values);
    Read8(a.weight + i, weight);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weight[j];
    Write8(out + i, values);
  }
}

// For rows that are not whole vectors.
__global__ void AnyNormKernel(ActivationNormArguments a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* const x = a.x + blockIdx.x * a.x_stride;
  __nv_bfloat16* const out = a.out + blockIdx.x * a.out_stride;
  const int first = static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
  float squares = 0;
  for (int i = first; i < a.cols; i += step) {
    const float value = __bfloat162float(x[i]);
    squares += value * value;
  }
  const float scale = ScaleOf(squares, a);
  for (int i = first; i < a.cols; i += step) {
    out[i] = __float2bfloat16(__bfloat162float(x[i]) * scale * a.weight[i]);
  }
}

}  // namespace

cudaError_t LaunchActivationNorm(
    const Tensor& x, const float* weight, float epsilon, const Tensor& out, cudaStream_t stream) {
  if (x.rows == 0) return cudaSuccess;
  const ActivationNormArguments arguments = {
      .x = reinterpret_cast<const __nv_bfloat16*>(x.data),
      .x_stride = x.stride,
      .weight = weight,
      .epsilon = epsilon,
      .out = reinterpret_cast<__nv_bfloat16*>(out.data),
      .out_stride = out.stride,
      .cols = static_cast<int>(x.cols),
  };
  const bool vectors = x.cols % 8 == 0;
  const unsigned threads = std::min(ThreadsFor(x.cols, 1), static_cast<unsigned>(kMaxRowThreads));
  return LaunchOverlapped(vectors ? VectorsNormKernel : AnyNormKernel,
                          dim3(static_cast<unsigned>(x.rows)),
                          dim3(vectors ? threads : 256),
                          0,
                          stream,
                          arguments);
}

}  // namespace baton::cuda
