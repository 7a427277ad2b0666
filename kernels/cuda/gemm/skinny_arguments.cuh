#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/gemm/skinny_plan.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {

// The arguments of the skinny GEMM's kernels.
struct SkinnyArguments {
  CUtensorMap weight;               // a box is tile_outputs rows × the spans of a stage
  CUtensorMap x;                    // a box is row_group rows × the spans of a stage
  const float* x_scales = nullptr;  // of FP8 operands, like weight_scales
  const float* weight_scales = nullptr;
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t outputs = 0;
  int32_t k_spans = 0;
  bool f32 = false;
  bool accumulate = false;
  SkinnyPlan plan;
};

// Threads of a thread block: the consumer warp groups, and the producer warp.
constexpr int32_t SkinnyThreads(int32_t warp_groups) {
  return (warp_groups * kWarpGroupWarps + 1) * 32;
}

// The tiles that this thread block computes, and its part of k.
struct SkinnyWork {
  int32_t first_tile;
  int32_t passes;
  int32_t rank;  // of the thread block in the cluster
  int32_t first_span;

  __device__ explicit SkinnyWork(const SkinnyArguments& a) {
    const SkinnyPlan& plan = a.plan;
    first_tile = static_cast<int32_t>(blockIdx.x) / plan.cluster;
    passes = CeilDiv(plan.tiles - first_tile, plan.clusters);
    rank = static_cast<int32_t>(blockIdx.x) % plan.cluster;
    first_span = rank * (a.k_spans / plan.cluster);
  }
};

}  // namespace baton::cuda
