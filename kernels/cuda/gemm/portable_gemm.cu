#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gemm/operand_rows.cuh"
#include "kernels/cuda/gemm/portable_gemm.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// With more rows, weights are read too often by tiles of 16 rows.
constexpr int32_t kMaxSmallRows = 64;

template <class Number>
using SmallTiles = MmaTiling<Number, Number, 16, 32, 1, 8, 128>;
template <class Number>
using LargeTiles = MmaTiling<Number, Number, 128, 128, 2, 3, 256>;

template <class Number>
struct Arguments {
  Operand<Number> x;
  Operand<Number> weight;
  int32_t k = 0;
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  bool f32 = false;
  bool accumulate = false;
};

// Adds the bias, then what `out` has, as the skinny GEMM does, and writes the output.
template <class Number>
__device__ __forceinline__ void StoreOutput(const Arguments<Number>& a,
                                            int32_t row,
                                            int32_t output,
                                            float sum) {
  if (row >= a.x.rows || output >= a.weight.rows) return;
  if (a.bias != nullptr) sum += __bfloat162float(a.bias[output]);
  const int64_t at = row * a.out_stride + output;
  if (a.f32) {
    float& out = static_cast<float*>(a.out)[at];
    out = a.accumulate ? sum + out : sum;
  } else {
    __nv_bfloat16& out = static_cast<__nv_bfloat16*>(a.out)[at];
    out = __float2bfloat16(a.accumulate ? sum + __bfloat162float(out) : sum);
  }
}

// A thread block for each tile of rows (blockIdx.x) and of outputs (blockIdx.y), so that blocks
// that run together read the same weights.
template <class T, bool kVectors>
__global__ void __launch_bounds__(T::kThreads)
    MultiplyInOrder(const __grid_constant__ Arguments<typename T::Number> a) {
  extern __shared__ __align__(128) unsigned char memory[];
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const auto first_row = static_cast<int32_t>(blockIdx.x) * T::kRows;
  const auto first_output = static_cast<int32_t>(blockIdx.y) * T::kWeightRows;
  const int32_t steps = CeilDiv(a.k, T::kDepth);
  const auto stage_of = [&](int32_t step) {
    return base + static_cast<uint32_t>(step % T::kStages * T::kStageBytes);
  };
  const auto fetch = [&](int32_t step) {
    if (step < steps) {
      const int32_t input = step * T::kDepth;
      CopyRows<T, T::kRows, kVectors>(a.x, first_row, input, a.k, stage_of(step), 0);
      CopyRows<T, T::kWeightRows, kVectors>(
          a.weight, first_output, input, a.k, stage_of(step), T::kXLines);
    }
    asm volatile("cp.async.commit_group;");
  };
#pragma unroll
  for (int32_t step = 0; step < T::kStages - 1; ++step) fetch(step);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp / T::kWeightWarps * T::kWarpRows;
  const int warp_output = warp % T::kWeightWarps * T::kWarpWeightRows;
  float accumulators[T::kRowAtoms][T::kWeightAtoms][4] = {};
  for (int32_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(T::kStages - 2));
    __syncthreads();
    fetch(step + T::kStages - 1);
    MultiplyStage<T>(stage_of(step), warp_row, warp_output, accumulators);
  }
#pragma unroll
  for (int i = 0; i < T::kRowAtoms; ++i) {
#pragma unroll
    for (int j = 0; j < T::kWeightAtoms; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        StoreOutput(a,
                    first_row + warp_row + 16 * i + e / 2 * 8 + lane / 4,
                    first_output + warp_output + 8 * j + lane % 4 * 2 + e % 2,
                    accumulators[i][j][e]);
      }
    }
  }
}

template <class T, bool kVectors>
cudaError_t LaunchTiles(const Arguments<typename T::Number>& a, cudaStream_t stream) {
  const auto kernel = MultiplyInOrder<T, kVectors>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.x.rows, T::kRows)),
                  static_cast<unsigned>(CeilDiv(a.weight.rows, T::kWeightRows)));
  return LaunchOverlapped(kernel, grid, dim3(T::kThreads), T::kBytes, stream, a);
}

template <class T>
cudaError_t LaunchTiles(const Arguments<typename T::Number>& a, cudaStream_t stream) {
  const auto is_multiple = [](auto bytes) { return bytes % kVectorBytes == 0; };
  const bool vectors = is_multiple(reinterpret_cast<uintptr_t>(a.x.at)) &&
                       is_multiple(reinterpret_cast<uintptr_t>(a.weight.at)) &&
                       is_multiple(a.x.stride * sizeof(typename T::Number)) &&
                       is_multiple(a.k * sizeof(typename T::Number));
  return vectors ? LaunchTiles<T, true>(a, stream) : LaunchTiles<T, false>(a, stream);
}

template <class Number>
cudaError_t LaunchFor(const GemmProblem& problem, cudaStream_t stream) {
  Arguments<Number> a;
  a.x = {static_cast<const Number*>(problem.x), problem.x_stride, problem.rows};
  a.weight = {static_cast<const Number*>(problem.weight), problem.k, problem.n};
  a.k = problem.k;
  a.bias = problem.bias;
  a.out = problem.out;
  a.out_stride = problem.out_stride;
  a.f32 = problem.out_dtype == DType::kF32;
  a.accumulate = problem.accumulate;
  return problem.rows <= kMaxSmallRows ? LaunchTiles<SmallTiles<Number>>(a, stream)
                                       : LaunchTiles<LargeTiles<Number>>(a, stream);
}

}  // namespace

cudaError_t LaunchPortableGemm(const GemmProblem& problem, cudaStream_t stream) {
  return problem.weight_dtype == DType::kFp8 ? LaunchFor<__nv_fp8_e4m3>(problem, stream)
                                             : LaunchFor<__nv_bfloat16>(problem, stream);
}

}  // namespace baton::cuda
