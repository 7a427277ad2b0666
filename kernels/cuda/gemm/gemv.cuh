#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/silu.cuh"

// The common part of the GEMV kernels, which are bound by the read of the weight. Each SM runs one
// thread block. Each warp computes one row after the other and streams it through a ring of its
// own, in chunks that bulk copies (cp.async.bulk) move to shared memory. The ring is filled before
// the kernel waits for the previous one, because weights do not depend on it. So memory stays busy
// from one kernel to the next.
namespace baton::cuda::gemv {

constexpr int kWarp = 32;
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRingBytes = 128 << 10;  // over half of an SM's shared memory: one block per SM
constexpr int kBarrierBytes = 4096;

struct Arguments {
  const void* weight;
  const float* weight_scales;  // of an FP8 weight
  const __nv_bfloat16* x;
  const float* residual;
  const float* norm_weight;
  float epsilon;
  const __nv_bfloat16* bias;
  void* out;
  int outputs;  // rows of the weight; with silu_mul, pairs of a gate and an up row
  int k;
  bool accumulate;
};

using Kernel = void (*)(Arguments);

inline Arguments ArgumentsOf(const GemmProblem& problem) {
  return {.weight = problem.weight,
          .weight_scales = problem.weight_scales,
          .x = static_cast<const __nv_bfloat16*>(problem.x),
          .residual = problem.residual,
          .norm_weight = problem.norm_weight,
          .epsilon = problem.norm_epsilon,
          .bias = problem.bias,
          .out = problem.out,
          .outputs = problem.silu_mul ? problem.n / 2 : problem.n,
          .k = problem.k,
          .accumulate = problem.accumulate};
}

// The kernel for an FP8 weight (gemv_fp8.cu).
Kernel Fp8KernelFor(const GemmProblem& problem);

// The kernel of a family for `problem`: Family::kKernel<numbers in a chunk, whether it has a norm,
// whether it has silu · up, type of the outputs>. Rows are divided into whole chunks.
template <class Family, int kChunk, class Out>
Kernel ChooseWork(const GemmProblem& problem) {
  if (problem.silu_mul) {
    return problem.norm_weight != nullptr ? Family::template kKernel<kChunk, true, true, Out>
                                          : Family::template kKernel<kChunk, false, true, Out>;
  }
  return problem.norm_weight != nullptr ? Family::template kKernel<kChunk, true, false, Out>
                                        : Family::template kKernel<kChunk, false, false, Out>;
}

template <class Family, int kChunk>
Kernel ChooseOut(const GemmProblem& problem) {
  return problem.out_dtype == DType::kF32 ? ChooseWork<Family, kChunk, float>(problem)
                                          : ChooseWork<Family, kChunk, __nv_bfloat16>(problem);
}

template <class Family>
Kernel Choose(const GemmProblem& problem) {
  if (problem.k % 1024 == 0) return ChooseOut<Family, 1024>(problem);
  if constexpr (Family::kOddChunks) {
    if (problem.k % 512 != 0) {
      return problem.k % 768 == 0 ? ChooseOut<Family, 768>(problem)
                                  : ChooseOut<Family, 960>(problem);
    }
  }
  return ChooseOut<Family, 512>(problem);
}

// Dynamic shared memory of a kernel for rows of k inputs.
inline size_t SharedBytes(int k) {
  return static_cast<size_t>(kRingBytes + kBarrierBytes) + static_cast<size_t>(k) * 2;
}

#if __CUDA_ARCH__ >= 900
// Initialises the barriers of a ring. Called by one thread, before its first copy.
__device__ __forceinline__ void InitBarriers(uint32_t first, int count) {
  for (int i = 0; i < count; ++i) InitBarrier(first + i * 8, 1);
  FenceBarrierInit();
}
#endif

// Copies x to shared memory: group i of 8 numbers becomes group place(i). For all threads of a
// block.
template <class Place>
__device__ __forceinline__ void LoadInput(const Arguments& a,
                                          __nv_bfloat16* to,
                                          const Place& place) {
  for (int i = static_cast<int>(threadIdx.x); i < a.k / 8; i += kThreads) {
    Store8(to + place(i) * 8, Load8(a.x + i * 8));
  }
  __syncthreads();
}

// As LoadInput, with residual · norm_weight / √(mean(residual²) + epsilon) instead of x.
template <class Place>
__device__ __forceinline__ void LoadNormed(const Arguments& a,
                                           __nv_bfloat16* to,
                                           const Place& place) {
  __shared__ float partial[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  float squares = 0;
  for (int i = thread; i < a.k / 8; i += kThreads) {
    float values[8];
    Read8(a.residual + i * 8, values);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(values[j], values[j], squares);
  }
  squares = SumOverWarp(squares);
  if (thread % kWarp == 0) partial[thread / kWarp] = squares;
  __syncthreads();
  squares = 0;
  for (int i = 0; i < kWarps; ++i) squares += partial[i];
  const float scale = rsqrtf(squares / static_cast<float>(a.k) + a.epsilon);
  for (int i = thread; i < a.k / 8; i += kThreads) {
    float values[8];
    float weights[8];
    Read8(a.residual + i * 8, values);
    Read8(a.norm_weight + i * 8, weights);
#pragma unroll
    for (int j = 0; j < 8; ++j) values[j] *= scale * weights[j];
    Write8(to + place(i) * 8, values);
  }
  __syncthreads();
}

template <class Out>
__device__ __forceinline__ void Store(const Arguments& a, int output, float value) {
  Out* out = static_cast<Out*>(a.out) + output;
  if (a.bias != nullptr) value += __bfloat162float(a.bias[output]);
  if (a.accumulate) value += static_cast<float>(*out);
  *out = static_cast<Out>(value);
}

}  // namespace baton::cuda::gemv
