#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// The last step of kernels whose thread blocks hold one row each.
namespace baton::cuda {

// Of a block whose threads come in whole warps; every thread gets it.
__device__ __forceinline__ float LargestOfBlock(float value) {
  return ReduceOverBlock(value, 0.0f, [](float of_thread) { return LargestOverWarp(of_thread); });
}

// A row of zeros gets the scale 0, and stays one.
__device__ __forceinline__ float QuantizingFactor(float largest) {
  return largest > 0 ? kLargestFp8 / largest : 0.0f;
}

// Of what a thread holds.
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

// Quantises a row, whose largest number is given, of which each thread holds groups of 8: group p
// lies at column (p · threads + thread) · 8. Groups behind `cols` must be zeros.
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
