#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/skinny_gemm_finish.cuh"
#include "kernels/cuda/skinny_gemm_work.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k] for few m is bound by reading the weight. One block a
// multiprocessor; its last warp streams the weight through a ring of stages, the others multiply:
// rows of the weight are the rows of the sums, rows of x their columns. The ring is filled with
// weights before the kernel waits for its predecessor, x follows. skinny_gemm_plan.h says who does
// what; lines of 128 bytes lie in shared memory with their 16-byte pieces permuted by the number of
// the line (piece ^ line % 8, the copy engine's 128-byte swizzle).
namespace baton::cuda {

#if __CUDA_ARCH__ >= 900
// A thread of the last warp.
template <int kGroups, bool kNorm>
__device__ __forceinline__ void FetchAll(const SkinnyGemmArguments& a,
                                         const SkinnyWork& work,
                                         const SkinnyMemory& memory) {
  constexpr int32_t kInputBytes = kGroups * kSkinnyGroupBytes;
  const SkinnyGemmPlan& plan = a.plan;
  const int32_t total = work.passes * work.rounds;
  const int32_t tile_bytes = plan.pass_units * plan.unit_tiles * kSkinnyTileBytes;
  const auto stage_at = [&](int32_t slot) {
    return memory.ring + static_cast<uint32_t>(slot * plan.spans * plan.span_bytes);
  };
  const auto full_of = [&](int32_t slot) { return memory.full + static_cast<uint32_t>(slot * 8); };
  // One after the other, each from the first stage to the last.
  int32_t pass = 0;
  int32_t weight_round = 0;
  const auto fetch_weight = [&](int32_t slot) {
    const int32_t span = weight_round * plan.spans;
    const int32_t spans = min(plan.spans, work.spans - span);
    const int32_t first_unit = work.first_unit + pass * plan.pass_units;
    const int32_t units = min(plan.pass_units, work.units - pass * plan.pass_units);
    const int32_t bytes = spans * (units * plan.unit_tiles * kSkinnyTileBytes + kInputBytes +
                                   (kNorm ? kSkinnySpan * 4 : 0));
    ArriveExpecting(full_of(slot), static_cast<uint32_t>(bytes));
    for (int32_t half = 0; half < plan.unit_tiles; ++half) {
      const int32_t row = half * a.outputs + first_unit * kSkinnyTileRows;
      const uint32_t to =
          stage_at(slot) + static_cast<uint32_t>(half * plan.pass_units * kSkinnyTileBytes);
      int32_t unit = 0;
      for (int32_t size = kSkinnyBoxSizes - 1; size >= 0; --size) {
        for (; unit + (1 << size) <= units; unit += 1 << size) {
          for (int32_t i = 0; i < spans; ++i) {
            FetchBox(to + static_cast<uint32_t>(i * plan.span_bytes + unit * kSkinnyTileBytes),
                     &a.weight[size],
                     (work.first_span + span + i) * kSkinnySpan,
                     row + unit * kSkinnyTileRows,
                     full_of(slot));
          }
        }
      }
    }
    if (++weight_round == work.rounds) {
      weight_round = 0;
      ++pass;
    }
  };
  int32_t input_round = 0;
  const auto fetch_input = [&](int32_t slot) {
    const int32_t span = input_round * plan.spans;
    const int32_t spans = min(plan.spans, work.spans - span);
    for (int32_t i = 0; i < spans; ++i) {
      const int32_t column = (work.first_span + span + i) * kSkinnySpan;
      const uint32_t to = stage_at(slot) + static_cast<uint32_t>(i * plan.span_bytes + tile_bytes);
      FetchBox(to, &a.x, column, 0, full_of(slot));
      if (kNorm) {
        FetchBytes(to + kInputBytes, a.norm_weight + column, kSkinnySpan * 4, full_of(slot));
      }
    }
    if (++input_round == work.rounds) input_round = 0;
  };

  const int32_t early = min(plan.stages, total);
  for (int32_t slot = 0; slot < early; ++slot) fetch_weight(slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) fetch_input(slot);
  int32_t slot = 0;
  uint32_t parity = 0;
  for (int32_t i = early; i < total; ++i) {
    AwaitPhase(memory.empty + static_cast<uint32_t>(slot * 8), parity);
    fetch_weight(slot);
    fetch_input(slot);
    if (++slot == plan.stages) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// Of two numbers, as bf16.
__device__ __forceinline__ __nv_bfloat162 Rounded(float2 pair) {
  return __floats2bfloat162_rn(pair.x, pair.y);
}

__device__ __forceinline__ uint32_t MultiplyPair(uint32_t pair, __nv_bfloat162 by) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), by);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Adds the squares of the warp's own groups of columns, 16 numbers of each.
template <int kGroups>
__device__ __forceinline__ void AddSquares(uint32_t line_at,
                                           const SkinnyWarp& place,
                                           SkinnySums<kGroups>& sums) {
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int32_t group = place.row_group + i * place.row_groups;
    if (group >= kGroups) break;
    uint32_t pairs[2];
    LoadMatrices(line_at + static_cast<uint32_t>(group * kSkinnyGroupBytes), pairs);
#pragma unroll
    for (const uint32_t pair : pairs) {
      const float low = __uint_as_float(pair << 16);
      const float high = __uint_as_float(pair & 0xffff0000u);
      sums.squares[i] = fmaf(low, low, sums.squares[i]);
      sums.squares[i] = fmaf(high, high, sums.squares[i]);
    }
  }
}

// Multiplies 16 of the 64 numbers of a span, `step` of 4, for kCount tiles.
template <int kGroups, bool kNorm, int kCount>
__device__ __forceinline__ void MultiplyStep(uint32_t span_at,
                                             uint32_t input_at,
                                             int32_t step,
                                             const SkinnyWarp& place,
                                             SkinnySums<kGroups>& sums) {
  const int32_t lane = place.lane;
  const auto piece = [&](int32_t half) {
    return static_cast<uint32_t>(((step * 2 + half) ^ (lane % 8)) * 16);
  };
  if constexpr (kNorm) {
    AddSquares(input_at + static_cast<uint32_t>(lane % 8 * 128) + piece(lane / 8 % 2), place, sums);
  }
  if constexpr (kCount == 0) return;
  uint32_t inputs[kGroups][2];
  if constexpr (kGroups == 1) {
    LoadMatrices(input_at + static_cast<uint32_t>(lane % 8 * 128) + piece(lane / 8 % 2), inputs[0]);
  } else {
    const uint32_t at =
        input_at + static_cast<uint32_t>((lane / 16 * 8 + lane % 8) * 128) + piece(lane / 8 % 2);
#pragma unroll
    for (int pair = 0; pair < kGroups / 2; ++pair) {
      uint32_t four[4];
      LoadMatrices(at + static_cast<uint32_t>(pair * 2 * kSkinnyGroupBytes), four);
      inputs[2 * pair][0] = four[0];
      inputs[2 * pair][1] = four[1];
      inputs[2 * pair + 1][0] = four[2];
      inputs[2 * pair + 1][1] = four[3];
    }
  }
  if constexpr (kNorm) {
    const uint32_t at = input_at + static_cast<uint32_t>(kGroups * kSkinnyGroupBytes) +
                        static_cast<uint32_t>((step * 16 + lane % 4 * 2) * 4);
    const __nv_bfloat162 left = Rounded(LoadShared2(at));
    const __nv_bfloat162 right = Rounded(LoadShared2(at + 32));
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      inputs[group][0] = MultiplyPair(inputs[group][0], left);
      inputs[group][1] = MultiplyPair(inputs[group][1], right);
    }
  }
  const uint32_t weights_at = span_at + static_cast<uint32_t>(lane % 16 * 128) + piece(lane / 16);
  uint32_t weights[kCount == 0 ? 1 : kCount][4];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    LoadMatrices(weights_at + static_cast<uint32_t>(place.Tile(i) * kSkinnyTileBytes), weights[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      MultiplyAdd(sums.tiles[i][group], weights[i], inputs[group]);
    }
  }
}

// The warp's part of a stage.
template <int kGroups, bool kNorm, int kCount>
__device__ __forceinline__ void MultiplyStage(uint32_t stage,
                                              const SkinnyGemmPlan& plan,
                                              int32_t spans,
                                              const SkinnyWarp& place,
                                              SkinnySums<kGroups>& sums) {
  const int32_t tile_bytes = plan.pass_units * plan.unit_tiles * kSkinnyTileBytes;
#pragma unroll 2
  for (int32_t step = place.k_group; step < 4 * spans; step += plan.k_groups) {
    const uint32_t span_at = stage + static_cast<uint32_t>(step / 4 * plan.span_bytes);
    MultiplyStep<kGroups, kNorm, kCount>(
        span_at, span_at + static_cast<uint32_t>(tile_bytes), step % 4, place, sums);
  }
}

// The other warps. Leaves the sums of the only pass in `sums`, of `count` tiles, unless they are
// finished here.
template <int kGroups, bool kNorm>
__device__ __forceinline__ int32_t MultiplyAll(const SkinnyGemmArguments& a,
                                               const SkinnyWork& work,
                                               const SkinnyMemory& memory,
                                               const SkinnyWarp& place,
                                               SkinnySums<kGroups>& sums) {
  const SkinnyGemmPlan& plan = a.plan;
  int32_t slot = 0;
  uint32_t parity = 0;
  int32_t count = 0;
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const int32_t units = min(plan.pass_units, work.units - pass * plan.pass_units);
    count = 0;
#pragma unroll
    for (int i = 0; i < kSkinnyTilesPerWarp; ++i) {
      if (place.Unit(i) < units) count = i + 1;
    }
    sums.Clear();
    for (int32_t round = 0; round < work.rounds; ++round) {
      AwaitPhase(memory.full + static_cast<uint32_t>(slot * 8), parity);
      const uint32_t stage =
          memory.ring + static_cast<uint32_t>(slot * plan.spans * plan.span_bytes);
      const int32_t spans = min(plan.spans, work.spans - round * plan.spans);
      switch (count) {
        case 0:
          if (kNorm) MultiplyStage<kGroups, kNorm, 0>(stage, plan, spans, place, sums);
          break;
        case 1:
          MultiplyStage<kGroups, kNorm, 1>(stage, plan, spans, place, sums);
          break;
        case 2:
          MultiplyStage<kGroups, kNorm, 2>(stage, plan, spans, place, sums);
          break;
        default:
          MultiplyStage<kGroups, kNorm, kSkinnyTilesPerWarp>(stage, plan, spans, place, sums);
      }
      __syncwarp();
      if (place.lane == 0) Arrive(memory.empty + static_cast<uint32_t>(slot * 8));
      if (++slot == plan.stages) {
        slot = 0;
        parity ^= 1;
      }
    }
    if (plan.direct()) {
      if (kNorm && pass == 0) ShareSquares<kGroups>(memory.squares, place, sums);
      const int32_t first_unit = work.first_unit + pass * plan.pass_units;
      PutDirect<kGroups, kNorm>(a, memory.squares, place, first_unit, count, sums);
    }
  }
  return count;
}

#endif

// kGroups groups of 8 rows of x; with kNorm x is normalised on the way: its numbers times the
// norm's weight before, the sums times the row's scale after.
template <int kGroups, bool kNorm>
__global__ void __launch_bounds__((kSkinnyWarps + 1) * 32, 1)
    SkinnyGemmKernel(const __grid_constant__ SkinnyGemmArguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char shared[];
  ReleaseSuccessor();
  const SkinnyMemory memory(shared);
  const SkinnyWork work(a);
  const SkinnyWarp place(a.plan);
  const bool multiplies = place.warp < kSkinnyWarps;
  if (threadIdx.x == 0) {
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(memory.full + static_cast<uint32_t>(i * 8), 1);
      InitBarrier(memory.empty + static_cast<uint32_t>(i * 8), kSkinnyWarps);
    }
    PublishBarriers();
  }
  __syncthreads();
  SkinnySums<kGroups> sums;
  int32_t count = 0;
  if (multiplies) {
    count = MultiplyAll<kGroups, kNorm>(a, work, memory, place, sums);
  } else {
    if (place.lane == 0) FetchAll<kGroups, kNorm>(a, work, memory);
    __syncwarp();
  }
  if (a.plan.direct()) return;
  __syncthreads();  // the ring has been read: from here on it holds sums
  ArriveAtCluster();
  if (multiplies) {
    const uint32_t partial = memory.ring + static_cast<uint32_t>(a.plan.partial_at);
    LayDownSums<kGroups>(a.plan, partial, place, count, sums);
  }
  __syncthreads();
  AwaitCluster();
  if (multiplies) PassOnSums<kGroups, kNorm>(a.plan, work, memory.ring, place, sums);
  ArriveAtCluster();
  AwaitCluster();
  if (multiplies) PutReceived<kGroups, kNorm>(a, work, memory.ring, place);
#endif
}

}  // namespace baton::cuda
