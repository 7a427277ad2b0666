#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// The FP8 epilogue of kernels in which each thread block holds one row.
namespace baton::cuda {

// The largest of a thread block's values, which are not negative; every thread receives it. The
// block must consist of whole warps.
__device__ __forceinline__ float LargestOfBlock(float value) {
  return ReduceOverBlock(value, 0.0f, [](float of_thread) { return LargestOverWarp(of_thread); });
}

// The factor by which a row is multiplied before it is rounded to FP8. A row of zeros has the
// factor and the scale 0.
__device__ __forceinline__ float QuantizingFactor(float largest) {
  return largest > 0 ? kLargestFp8 / largest : 0.0f;
}

// The largest magnitude among the values that a thread holds.
template <int kVectors>
__device__ __forceinline__ float LargestOf(const float (&values)[kVectors][8]) {
  float largest = 0;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[vector][i]));
  }
  return largest;
}

// Writes a row in FP8, with its scale; `largest` is the row's largest magnitude. Each thread holds
// vectors of 8 values: vector v begins at column (v · threads + thread) · 8. Vectors from `cols` on
// must be zeros.
template <int kVectors>
__device__ __forceinline__ void QuantizeRow(
    const float (&values)[kVectors][8], float largest, int cols, uint8_t* out, float* scale) {
  const float factor = QuantizingFactor(largest);
  if (threadIdx.x == 0) *scale = largest / kLargestFp8;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at < cols) *reinterpret_cast<uint2*>(out + at) = PackFp8(values[vector], factor);
  }
}

}  // namespace baton::cuda
