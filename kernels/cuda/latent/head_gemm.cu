#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/gemm/operand_rows.cuh"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/latent/rotate_latent.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/latent_request.h"

// The products of all heads in one launch: each head has rows of its own and a matrix of its own.
namespace baton::cuda {
namespace {

using FewRows = MmaTiling<__nv_bfloat16, __nv_bfloat16, 16, 64, 1, 4, 128>;
using SomeRows = MmaTiling<__nv_bfloat16, __nv_bfloat16, 64, 64, 2, 3, 128>;
using ManyRows = MmaTiling<__nv_bfloat16, __nv_bfloat16, 128, 128, 2, 3, 256>;

struct Arguments {
  const __nv_bfloat16* x;
  int64_t x_stride;
  int x_head;
  __nv_bfloat16* out;
  int64_t out_stride;
  int out_head;
  int rows;
  int n;
  int k;
  int rope_dim;
  LatentAngles angles;
  const __nv_bfloat16* weights[kMaxLatentHeads];
};

__device__ __forceinline__ void RotateRows(const Arguments& a, int head, int first_row, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int end = min(first_row + rows, a.rows);
  for (int row = first_row + static_cast<int>(threadIdx.x) / 32; row < end;
       row += static_cast<int>(blockDim.x) / 32) {
    __nv_bfloat16* const to = a.out + row * a.out_stride + int64_t{head} * a.out_head + a.n;
    RotateLatent(a.angles,
                 row,
                 a.rope_dim,
                 lane,
                 32,
                 a.x + row * a.x_stride + int64_t{head} * a.x_head + a.k,
                 [&](int i, float value) { to[i] = __float2bfloat16(value); });
  }
}

// Grid [tile of rows][tile of outputs][head]. The last tile of outputs is the rotated numbers.
template <class T, bool kVectors>
__global__ void __launch_bounds__(T::kThreads) MultiplyHeads(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) unsigned char memory[];
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto head = static_cast<int>(blockIdx.z);
  const auto first_row = static_cast<int32_t>(blockIdx.x) * T::kRows;
  const auto first_output = static_cast<int32_t>(blockIdx.y) * T::kWeightRows;
  if (first_output >= a.n) {
    RotateRows(a, head, first_row, T::kRows);
    return;
  }
  const Operand<__nv_bfloat16> x = {a.x + int64_t{head} * a.x_head, a.x_stride, a.rows};
  const Operand<__nv_bfloat16> weight = {a.weights[head], a.k, a.n};
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const int32_t steps = CeilDiv(a.k, T::kDepth);
  const auto stage_of = [&](int32_t step) {
    return base + static_cast<uint32_t>(step % T::kStages * T::kStageBytes);
  };
  const auto fetch = [&](int32_t step) {
    if (step < steps) {
      const int32_t input = step * T::kDepth;
      CopyRows<T, T::kRows, kVectors>(x, first_row, input, a.k, stage_of(step), 0);
      CopyRows<T, T::kWeightRows, kVectors>(
          weight, first_output, input, a.k, stage_of(step), T::kXLines);
    }
    asm volatile("cp.async.commit_group;");
  };
#pragma unroll
  for (int32_t step = 0; step < T::kStages - 1; ++step) fetch(step);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / T::kWeightWarps * T::kWarpRows;
  const int warp_output = warp % T::kWeightWarps * T::kWarpWeightRows;
  float sums[T::kRowAtoms][T::kWeightAtoms][4] = {};
  for (int32_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(T::kStages - 2));
    __syncthreads();
    fetch(step + T::kStages - 1);
    MultiplyStage<T>(stage_of(step), warp_row, warp_output, sums);
  }
#pragma unroll
  for (int i = 0; i < T::kRowAtoms; ++i) {
#pragma unroll
    for (int j = 0; j < T::kWeightAtoms; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first_row + warp_row + 16 * i + e / 2 * 8 + lane / 4;
        const int output = first_output + warp_output + 8 * j + lane % 4 * 2 + e % 2;
        if (row >= a.rows || output >= a.n) continue;
        a.out[row * a.out_stride + int64_t{head} * a.out_head + output] =
            __float2bfloat16(sums[i][j][e]);
      }
    }
  }
}

template <class T, bool kVectors>
cudaError_t LaunchTiles(const Arguments& a, int heads, cudaStream_t stream) {
  const auto kernel = MultiplyHeads<T, kVectors>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.rows, T::kRows)),
                  static_cast<unsigned>(CeilDiv(a.n, T::kWeightRows) + (a.rope_dim > 0 ? 1 : 0)),
                  static_cast<unsigned>(heads));
  return LaunchOverlapped(kernel, grid, dim3(T::kThreads), T::kBytes, stream, a);
}

template <class T>
cudaError_t LaunchTiles(const Arguments& a, int heads, cudaStream_t stream) {
  constexpr int kNumbers = kVectorBytes / static_cast<int>(sizeof(__nv_bfloat16));
  const auto is_aligned = [](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % kVectorBytes == 0;
  };
  const bool vectors = is_aligned(a.x) && std::all_of(a.weights, a.weights + heads, is_aligned) &&
                       a.x_stride % kNumbers == 0 && a.x_head % kNumbers == 0 &&
                       a.k % kNumbers == 0;
  return vectors ? LaunchTiles<T, true>(a, heads, stream) : LaunchTiles<T, false>(a, heads, stream);
}

}  // namespace

cudaError_t LaunchHeadGemm(const HeadGemmOp& op, cudaStream_t stream) {
  const auto heads = static_cast<int>(op.weights->size());
  if (heads > kMaxLatentHeads) return cudaErrorNotSupported;
  Arguments a = {.x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                 .x_stride = op.x.stride,
                 .x_head = op.x_head,
                 .out = reinterpret_cast<__nv_bfloat16*>(op.out.data),
                 .out_stride = op.out.stride,
                 .out_head = op.out_head,
                 .rows = static_cast<int>(op.x.rows),
                 .n = op.n,
                 .k = op.k,
                 .rope_dim = op.rope_dim,
                 .angles = op.angles,
                 .weights = {}};
  std::copy(op.weights->begin(), op.weights->end(), a.weights);
  if (a.rows <= FewRows::kRows) return LaunchTiles<FewRows>(a, heads, stream);
  if (a.rows <= SomeRows::kRows) return LaunchTiles<SomeRows>(a, heads, stream);
  return LaunchTiles<ManyRows>(a, heads, stream);
}

}  // namespace baton::cuda
