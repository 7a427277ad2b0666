#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/skinny_gemm_device.cuh"
#include "kernels/cuda/skinny_gemm_layout.h"
#include "kernels/cuda/skinny_gemm_plan.h"

// Who and where: the parts of a product of few rows that its phases share.
namespace baton::cuda {

struct SkinnyGemmArguments {
  CUtensorMap weight[kSkinnyBoxSizes];  // boxes of the rows of 1, 2, 4 and 8 tiles × 64
  CUtensorMap x;                        // boxes of all columns × 64
  const float* norm_weight;
  float norm_epsilon;
  const __nv_bfloat16* bias;
  void* out;
  int64_t out_stride;
  int32_t rows;     // of x
  int32_t outputs;  // of a row
  int32_t k;
  bool f32;
  bool accumulate;
  SkinnyGemmPlan plan;
};

#if __CUDA_ARCH__ >= 900
// A block's share.
struct SkinnyWork {
  int32_t rank;  // in the cluster
  int32_t first_unit;
  int32_t units;
  int32_t passes;
  int32_t first_span;
  int32_t spans;
  int32_t rounds;  // stages of a pass

  __device__ explicit SkinnyWork(const SkinnyGemmArguments& a) {
    const SkinnyGemmPlan& plan = a.plan;
    rank = static_cast<int32_t>(blockIdx.x) % plan.cluster;
    const int64_t cluster = static_cast<int32_t>(blockIdx.x) / plan.cluster;
    first_unit = static_cast<int32_t>(cluster * plan.units / plan.clusters);
    units = static_cast<int32_t>((cluster + 1) * plan.units / plan.clusters) - first_unit;
    passes = (units + plan.pass_units - 1) / plan.pass_units;
    const int32_t all_spans = a.k / kSkinnySpan;
    first_span = rank * all_spans / plan.cluster;
    spans = (rank + 1) * all_spans / plan.cluster - first_span;
    rounds = (spans + plan.spans - 1) / plan.spans;
  }
};

// Where things lie in shared memory.
struct SkinnyMemory {
  static constexpr int32_t kMostColumns = 64;

  uint32_t full;     // a barrier a stage: it has come
  uint32_t empty;    // a barrier a stage: it has been read
  uint32_t squares;  // sums of squares of the columns, where blocks finish their sums alone
  uint32_t ring;

  __device__ explicit SkinnyMemory(const void* memory) {
    const uint32_t base = SharedAddress(memory);
    full = base;
    empty = full + kSkinnyMostStages * 8;
    squares = empty + kSkinnyMostStages * 8;
    ring = (squares + kMostColumns * 4 + 1023) / 1024 * 1024;
  }
};

// What a warp that multiplies knows of its place.
struct SkinnyWarp {
  int32_t lane;
  int32_t warp;
  int32_t row_group;
  int32_t k_group;
  int32_t unit_tiles;
  int32_t row_groups;
  int32_t pass_units;

  __device__ explicit SkinnyWarp(const SkinnyGemmPlan& plan) {
    lane = static_cast<int32_t>(threadIdx.x) % 32;
    warp = static_cast<int32_t>(threadIdx.x) / 32;
    row_group = warp % plan.row_groups;
    k_group = warp / plan.row_groups;
    unit_tiles = plan.unit_tiles;
    row_groups = plan.row_groups;
    pass_units = plan.pass_units;
  }

  // The unit, of those at hand, to which the warp's tile `i` belongs.
  __device__ __forceinline__ int32_t Unit(int32_t i) const {
    return row_group + (unit_tiles == 2 ? i / 2 : i) * row_groups;
  }
  __device__ __forceinline__ int32_t Half(int32_t i) const { return unit_tiles == 2 ? i % 2 : 0; }
  // Its place in a stage: first halves come before second ones.
  __device__ __forceinline__ int32_t Tile(int32_t i) const {
    return Half(i) * pass_units + Unit(i);
  }
};

// Sums of a warp: tiles × groups of 8 columns. A lane holds rows lane / 4 and that + 8, columns
// lane % 4 · 2 and that + 1: (row, column), (row, column + 1), (row + 8, column), ….
template <int kGroups>
struct SkinnySums {
  float tiles[kSkinnyTilesPerWarp][kGroups][4];
  // Of x, for the warp's own groups of columns (row_group, then every row_groups-th) alone: column
  // lane / 4, over the lane's part of k.
  float squares[kGroups];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      squares[group] = 0;
#pragma unroll
      for (int i = 0; i < kSkinnyTilesPerWarp; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) tiles[i][group][e] = 0;
      }
    }
  }
};

#endif

}  // namespace baton::cuda
