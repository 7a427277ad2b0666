#pragma once

#include "kernels/cuda/skinny_gemm_work.cuh"

// From the sums of warps to outputs.
namespace baton::cuda {

#if __CUDA_ARCH__ >= 900
// Finishes 16 outputs of 8 rows of x, held as in SkinnySums; `up` counts for pairs alone.
__device__ __forceinline__ void PutSums(const SkinnyGemmArguments& a,
                                        int32_t unit,
                                        int32_t group,
                                        int32_t lane,
                                        const float (&scales)[2],
                                        const float (&first)[4],
                                        const float (&up)[4]) {
  float values[4];
  int64_t places[4];
  bool inside[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int32_t row = group * kSkinnyGroupColumns + lane % 4 * 2 + e % 2;
    const int32_t output = unit * kSkinnyTileRows + lane / 4 + e / 2 * 8;
    inside[e] = row < a.rows;
    places[e] = row * a.out_stride + output;
    values[e] = first[e] * scales[e % 2];
    if (a.plan.unit_tiles == 2) {
      values[e] = values[e] / (1.0f + __expf(-values[e])) * (up[e] * scales[e % 2]);
    }
    if (a.bias != nullptr) values[e] += __bfloat162float(a.bias[output]);
  }
  auto* f32 = static_cast<float*>(a.out);
  auto* bf16 = static_cast<__nv_bfloat16*>(a.out);
  if (a.accumulate) {
    float before[4] = {};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (inside[e]) before[e] = a.f32 ? f32[places[e]] : __bfloat162float(bf16[places[e]]);
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] += before[e];
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (!inside[e]) continue;
    if (a.f32) {
      f32[places[e]] = values[e];
    } else {
      bf16[places[e]] = __float2bfloat16(values[e]);
    }
  }
}

__device__ __forceinline__ float NormScale(const SkinnyGemmArguments& a, float squares) {
  return rsqrtf(squares / static_cast<float>(a.k) + a.norm_epsilon);
}

// The sum over the four lanes that share a column.
__device__ __forceinline__ float SumOverColumn(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// Tells all warps the sums of squares, where each is a row group by itself.
template <int kGroups>
__device__ __forceinline__ void ShareSquares(uint32_t to,
                                             const SkinnyWarp& place,
                                             const SkinnySums<kGroups>& sums) {
  if (place.row_group < kGroups) {
    const float squares = SumOverColumn(sums.squares[0]);
    const int32_t column = place.row_group * kSkinnyGroupColumns + place.lane / 4;
    if (place.lane % 4 == 0) StoreShared(to + static_cast<uint32_t>(column * 4), squares);
  }
  SyncThreads(kSkinnyWarps * 32);
}

// Finishes the units that this warp has summed alone.
template <int kGroups, bool kNorm>
__device__ __forceinline__ void PutDirect(const SkinnyGemmArguments& a,
                                          uint32_t squares,
                                          const SkinnyWarp& place,
                                          int32_t first_unit,
                                          int32_t count,
                                          const SkinnySums<kGroups>& sums) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    float scales[2] = {1.0f, 1.0f};
    if constexpr (kNorm) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int32_t column = group * kSkinnyGroupColumns + place.lane % 4 * 2 + e;
        scales[e] = NormScale(a, LoadShared(squares + static_cast<uint32_t>(column * 4)));
      }
    }
#pragma unroll
    for (int i = 0; i < kSkinnyTilesPerWarp; ++i) {
      if (i >= count || place.Half(i) == 1) continue;
      PutSums(a,
              first_unit + place.Unit(i),
              group,
              place.lane,
              scales,
              sums.tiles[i][group],
              sums.tiles[i + 1 < kSkinnyTilesPerWarp ? i + 1 : i][group]);
    }
  }
}

// Lays a warp's sums where the block can read them. All that needs the registers' names is here:
// what follows is short loops, since code that runs once comes from afar.
template <int kGroups>
__device__ __forceinline__ void LayDownSums(const SkinnyGemmPlan& plan,
                                            uint32_t partial,
                                            const SkinnyWarp& place,
                                            int32_t count,
                                            const SkinnySums<kGroups>& sums) {
  const int32_t first = place.k_group * plan.pass_units * plan.unit_tiles;
#pragma unroll
  for (int i = 0; i < kSkinnyTilesPerWarp; ++i) {
    if (i >= count) continue;
    const uint32_t to =
        partial + static_cast<uint32_t>((first + place.Tile(i)) * kGroups * kSkinnyGroupSumBytes +
                                        place.lane * 16);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      StoreShared(to + static_cast<uint32_t>(group * kSkinnyGroupSumBytes), sums.tiles[i][group]);
    }
  }
}

// Adds up the sums of the warps that share out k, in order, and sends them to the blocks that
// finish them: unit u to block u % cluster.
template <int kGroups, bool kNorm>
__device__ __forceinline__ void PassOnSums(const SkinnyGemmPlan& plan,
                                           const SkinnyWork& work,
                                           uint32_t ring,
                                           const SkinnyWarp& place,
                                           const SkinnySums<kGroups>& sums) {
  const uint32_t lane_at = ring + static_cast<uint32_t>(place.lane * 16);
  const int32_t items = work.units * kGroups;
#pragma unroll 1
  for (int32_t item = place.warp; item < items * plan.unit_tiles; item += kSkinnyWarps) {
    const int32_t half = item < items ? 0 : 1;
    const int32_t unit = (item - half * items) / kGroups;
    const int32_t group = item % kGroups;
    float sum[4] = {};
    for (int32_t k_group = 0; k_group < plan.k_groups; ++k_group) {
      const int32_t tile = (k_group * plan.unit_tiles + half) * plan.pass_units + unit;
      const float4 more =
          LoadShared4(lane_at + static_cast<uint32_t>(plan.partial_at + (tile * kGroups + group) *
                                                                            kSkinnyGroupSumBytes));
      sum[0] += more.x;
      sum[1] += more.y;
      sum[2] += more.z;
      sum[3] += more.w;
    }
    const int32_t slot = work.rank * plan.received_slots + unit / plan.cluster;
    const int32_t to = ((slot * plan.unit_tiles + half) * kGroups + group) * kSkinnyGroupSumBytes;
    StoreInCluster(AddressIn(lane_at + static_cast<uint32_t>(plan.received_at + to),
                             static_cast<uint32_t>(unit % plan.cluster)),
                   sum);
  }
  if constexpr (kNorm) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int32_t group = place.row_group + i * place.row_groups;
      if (group >= kGroups) break;
      const float squares = SumOverColumn(sums.squares[i]);
      if (place.lane % 4 != 0) continue;
      const int32_t part = work.rank * plan.k_groups + place.k_group;
      const int32_t number = (part * kGroups + group) * kSkinnyGroupColumns + place.lane / 4;
      const uint32_t to = ring + static_cast<uint32_t>(number * 4);
      for (int32_t rank = 0; rank < plan.cluster; ++rank) {
        StoreInCluster(AddressIn(to, static_cast<uint32_t>(rank)), squares);
      }
    }
  }
}

// Adds up what the blocks of the cluster have sent, in order.
template <int kGroups, bool kNorm>
__device__ __forceinline__ void PutReceived(const SkinnyGemmArguments& a,
                                            const SkinnyWork& work,
                                            uint32_t ring,
                                            const SkinnyWarp& place) {
  const SkinnyGemmPlan& plan = a.plan;
  const int32_t units = (work.units - work.rank + plan.cluster - 1) / plan.cluster;
  const auto sum = [&](int32_t tile, int32_t group, float(&to)[4]) {
#pragma unroll
    for (float& number : to) number = 0;
    for (int32_t rank = 0; rank < plan.cluster; ++rank) {
      const int32_t from = (rank * plan.received_slots * plan.unit_tiles + tile) * kGroups + group;
      const float4 more =
          LoadShared4(ring + static_cast<uint32_t>(plan.received_at + from * kSkinnyGroupSumBytes +
                                                   place.lane * 16));
      to[0] += more.x;
      to[1] += more.y;
      to[2] += more.z;
      to[3] += more.w;
    }
  };
  for (int32_t item = place.warp; item < units * kGroups; item += kSkinnyWarps) {
    const int32_t slot = item / kGroups;
    const int32_t group = item % kGroups;
    float scales[2] = {1.0f, 1.0f};
    if constexpr (kNorm) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float squares = 0;
        for (int32_t part = 0; part < plan.cluster * plan.k_groups; ++part) {
          const int32_t number =
              (part * kGroups + group) * kSkinnyGroupColumns + place.lane % 4 * 2 + e;
          squares += LoadShared(ring + static_cast<uint32_t>(number * 4));
        }
        scales[e] = NormScale(a, squares);
      }
    }
    float first[4];
    float up[4] = {};
    sum(slot * plan.unit_tiles, group, first);
    if (plan.unit_tiles == 2) sum(slot * 2 + 1, group, up);
    const int32_t unit = work.first_unit + slot * plan.cluster + work.rank;
    PutSums(a, unit, group, place.lane, scales, first, up);
  }
}
#endif

}  // namespace baton::cuda
