#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"

// Tiles of GEMMs with mma.sync, whose operands lie in shared memory in swizzled rows
// (async_copy.cuh). An accumulator adds its products in ascending k.
namespace baton::cuda {

// The rows and weight rows of a thread block's tile, and how its warps divide them. A stage has as
// many inputs as fill a swizzled row with weights; a row of x fills kRowLines swizzled rows.
template <class X,
          class Weight,
          int kRows_,
          int kWeightRows_,
          int kRowWarps_,
          int kStages_,
          int kThreads_>
struct MmaTiling {
  using Number = Weight;
  static constexpr int kDepth = kSwizzledRowBytes / sizeof(Number);
  static constexpr int kRowLines = sizeof(X) / sizeof(Number);
  static constexpr int kThreads = kThreads_;
  static constexpr int kRowStep = kThreads / kSwizzledRowVectors;  // rows copied at a time
  static constexpr int kRows = kRows_;
  static constexpr int kWeightRows = kWeightRows_;
  static constexpr int kStages = kStages_;
  static constexpr int kWeightWarps = kThreads / 32 / kRowWarps_;
  static constexpr int kWarpRows = kRows / kRowWarps_;
  static constexpr int kWarpWeightRows = kWeightRows / kWeightWarps;
  static constexpr int kRowAtoms = kWarpRows / 16;
  static constexpr int kWeightAtoms = kWarpWeightRows / 8;
  static constexpr int kXLines = kRows * kRowLines;  // swizzled rows of x before the weights
  static constexpr int kStageBytes = (kXLines + kWeightRows) * kSwizzledRowBytes;
  static constexpr int kBytes = kStageBytes * kStages;
  static_assert(kWeightAtoms > 0 && kRowAtoms > 0 && kBytes <= kPortableSharedBytes);
};

__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

// Adds the products of 32 bytes of k: 16 numbers of bf16, or 32 of FP8.
template <class Number>
__device__ __forceinline__ void MultiplyAdd(float (&sum)[4],
                                            const uint32_t (&a)[4],
                                            uint32_t b0,
                                            uint32_t b1) {
  if constexpr (std::is_same_v<Number, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(kIsFp8<Number>);
#if __CUDA_ARCH__ >= 890
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    __trap();  // KernelFamily::kFp8
#endif
  }
}

// Multiplies one stage into the warp's accumulators. x and weights are of one type.
template <class T>
__device__ __forceinline__ void MultiplyStage(
    uint32_t stage,
    int first_row,
    int first_weight_row,
    float (&accumulators)[T::kRowAtoms][T::kWeightAtoms][4]) {
  static_assert(T::kRowLines == 1);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < kSwizzledRowVectors / 4; ++k) {
    uint32_t x[2][T::kRowAtoms][4];
#pragma unroll
    for (int i = 0; i < T::kRowAtoms; ++i) {
      const int row = first_row + 16 * i + lane % 16;
      LoadMatrices(x[0][i], SwizzledVector(stage, row, 4 * k + lane / 16));
      LoadMatrices(x[1][i], SwizzledVector(stage, row, 4 * k + 2 + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < T::kWeightAtoms; ++j) {
      uint32_t w[4];  // four vectors of eight weight rows
      const int row = T::kXLines + first_weight_row + 8 * j + lane % 8;
      LoadMatrices(w, SwizzledVector(stage, row, 4 * k + lane / 8));
#pragma unroll
      for (int i = 0; i < T::kRowAtoms; ++i) {
        MultiplyAdd<typename T::Number>(accumulators[i][j], x[0][i], w[0], w[1]);
        MultiplyAdd<typename T::Number>(accumulators[i][j], x[1][i], w[2], w[3]);
      }
    }
  }
}

}  // namespace baton::cuda
