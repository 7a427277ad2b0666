#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/few_rows_arguments.cuh"
#include "kernels/cuda/few_rows_plan.h"
#include "kernels/cuda/few_rows_sums.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ring_cursor.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k] for few m is bound by reading the weight. The block's last
// warp streams tiles of the weight and the matching pieces of x through a ring of stages; the other
// four, or several teams of four, multiply them: rows of the weight are the rows of the sums, rows
// of x their columns. The ring is filled with weights before the kernel waits for its predecessor,
// x follows.
namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The block's shared memory: barriers, ring, and what warps lay down to rearrange or add up.
struct FewRowsMemory {
  uint32_t full;   // a barrier a stage: weights and x have come
  uint32_t empty;  // the same: the warps have read them
  uint32_t ring;
  uint32_t staging;  // a team that is alone
  uint32_t sums;

  __device__ FewRowsMemory(const FewRowsPlan& plan, const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kFewRowsStages * 8),
        ring(full + kFewRowsHead),
        staging(ring + static_cast<uint32_t>(plan.stages * plan.stage_bytes)),
        sums(ring + static_cast<uint32_t>(plan.sums_at)) {}
  __device__ uint32_t Stage(const FewRowsPlan& plan, int32_t slot) const {
    return ring + static_cast<uint32_t>(slot * plan.stage_bytes);
  }
};

// A thread of the last warp.
template <bool kPairs>
__device__ __forceinline__ void FetchFewRows(const FewRowsArguments& a,
                                             const FewRowsWork& work,
                                             const FewRowsMemory& memory) {
  const FewRowsPlan& plan = a.plan;
  const int32_t total = work.passes * plan.rounds;
  int32_t output = work.first_tile * plan.tile_outputs;
  int32_t weight_span = work.first_span;
  int32_t round = 0;
  const auto fetch_weight = [&](int32_t slot) {
    const uint32_t barrier = memory.full + static_cast<uint32_t>(slot * 8);
    const uint32_t to = memory.Stage(plan, slot);
    ArriveExpecting(barrier, static_cast<uint32_t>(plan.stage_bytes));
    FetchBox(to, &a.weight, 0, output, weight_span, barrier, kKeepNormally);
    if (kPairs) {
      FetchBox(to + static_cast<uint32_t>(plan.weight_bytes / 2),
               &a.weight,
               0,
               a.outputs + output,
               weight_span,
               barrier,
               kKeepNormally);
    }
    weight_span += plan.spans;
    if (++round == plan.rounds) {
      round = 0;
      weight_span = work.first_span;
      output += plan.clusters * plan.tile_outputs;
    }
  };
  int32_t input_round = 0;
  const auto fetch_input = [&](int32_t slot) {
    FetchBox(memory.Stage(plan, slot) + static_cast<uint32_t>(plan.weight_bytes),
             &a.x,
             0,
             0,
             work.first_span + input_round * plan.spans,
             memory.full + static_cast<uint32_t>(slot * 8),
             kKeepLong);
    if (++input_round == plan.rounds) input_round = 0;
  };

  const int32_t early = min(plan.stages, total);
  for (int32_t slot = 0; slot < early; ++slot) fetch_weight(slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) fetch_input(slot);
  RingCursor cursor;
  for (int32_t i = early; i < total; ++i) {
    AwaitPhase(memory.empty + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
    fetch_weight(cursor.slot);
    fetch_input(cursor.slot);
    cursor.Advance(1, plan.stages);
  }
}

// Adds the product of a stage to the sums; with kPairs the second half of the matrices is up's.
// Commits each span's products by themselves: ptxas puts an empty product where a loop of them ends
// without that. `begun` is called once the first span's are under way.
template <class Number, int kGroup, int kMatrices, bool kPairs, class Begun>
__device__ __forceinline__ void MultiplyStage(const FewRowsPlan& plan,
                                              uint32_t stage,
                                              float (&sums)[kMatrices][kGroup / 2],
                                              const Begun& begun) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const auto blocks = [](int32_t bytes) { return static_cast<uint64_t>(bytes >> 4); };
  const uint64_t span_blocks = blocks(plan.tile_outputs * kSpanBytes);
  const uint64_t up = blocks(plan.weight_bytes / 2);
  uint64_t weight = MatrixAt(stage);
  uint64_t x = MatrixAt(stage + static_cast<uint32_t>(plan.weight_bytes));
  for (int32_t span = 0; span < plan.spans; ++span) {
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kSpanSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i) {
        const uint64_t at = weight + static_cast<uint64_t>(step * 2) + (i >= kHalf ? up : 0) +
                            blocks(i % kHalf * kFewRowsMatrix * kSpanBytes);
        MultiplyInto<kGroup, Number>(sums[i], at, x + static_cast<uint64_t>(step * 2));
      }
    }
    CommitProducts();
    if (span == 0) begun();
    weight += span_blocks;
    x += blocks(kGroup * kSpanBytes);
  }
}

// All teams of the block, not the warp that fetches.
template <int kTeams>
__device__ __forceinline__ void SyncTeams() {
  asm volatile("barrier.sync 1, %0;" ::"n"(kTeams * kFewRowsWarps * 32) : "memory");
}

// The warps that multiply. Teams take stages in turn.
template <class Number, int kGroup, int kMatrices, bool kPairs, int kTeams>
__device__ __forceinline__ void MultiplyFewRows(const FewRowsArguments& a,
                                                const FewRowsWork& work,
                                                const FewRowsMemory& memory) {
  const FewRowsPlan& plan = a.plan;
  const FewRowsSums layout(plan, kPairs);
  const int32_t team = static_cast<int32_t>(threadIdx.x) / (kFewRowsWarps * 32);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const bool tells = threadIdx.x % 32 == 0;
  const auto empty_of = [&](int32_t slot) {
    return memory.empty + static_cast<uint32_t>(slot * 8);
  };
  int32_t round = team;  // of all passes
  RingCursor cursor;
  cursor.Advance(team, plan.stages);
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const int32_t tile = work.first_tile + pass * plan.clusters;
    const FewRowsShare share(plan, work, tile);
    // Early: it comes while the product is computed.
    float4 before = make_float4(0, 0, 0, 0);
    if (plan.parted() && share.Has(a, thread)) {
      before = LoadBefore(a, share.Row(thread), share.Output(thread));
    }
    float sums[kMatrices][kGroup / 2];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
#pragma unroll
      for (int e = 0; e < kGroup / 2; ++e) sums[i][e] = 0;
    }
    [[maybe_unused]] int32_t last = -1;  // stage that is being read
    for (; round < (pass + 1) * plan.rounds; round += kTeams) {
      AwaitPhase(memory.full + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
      const auto begun = [&] {
        if constexpr (kTeams == 1) {
          // The stage before has been read; the next one's products go on meanwhile.
          AwaitProducts<1>();
          if (tells && last >= 0) Arrive(empty_of(last));
          last = cursor.slot;
        }
      };
      MultiplyStage<Number, kGroup, kMatrices, kPairs>(
          plan, memory.Stage(plan, cursor.slot), sums, begun);
      if constexpr (kTeams > 1) {
        // Each must not keep a stage until its next comes: the ring may hold no more.
        AwaitProducts<0>();
        if (tells) Arrive(empty_of(cursor.slot));
      }
      cursor.Advance(kTeams, plan.stages);
    }
    if constexpr (kTeams == 1) {
      AwaitProducts<0>();
      if (tells) Arrive(empty_of(last));
    }
    if (!plan.parted()) {
      PutTile<Number, kGroup, kMatrices, kPairs>(a, memory.staging, tile * plan.tile_outputs, sums);
      continue;
    }
    SyncTeams<kTeams>();  // no team reads any more what lies there
    LayDownTile<kGroup, kMatrices, kPairs>(
        plan, memory.sums + static_cast<uint32_t>(team * layout.team_bytes), sums);
    if (plan.cluster == 1) {
      SyncTeams<kTeams>();
    } else {
      ArriveAtCluster();
      AwaitCluster();
    }
    PutShare<Number, kPairs, kTeams>(a, share, memory.sums, before);
  }
}

#endif

// Number: of the operands; kGroup: rows of x, filled up; kMatrices, kTeams: the plan's.
template <class Number, int kGroup, int kMatrices, bool kPairs, int kTeams>
__global__ void __launch_bounds__(FewRowsThreads(kTeams), 1)
    FewRowsKernel(const __grid_constant__ FewRowsArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const FewRowsMemory memory(a.plan, shared);
  const FewRowsWork work(a);
  constexpr int32_t kFetching = kTeams * kFewRowsWarps * 32;
  if (threadIdx.x == kFetching) {
    PrefetchMap(&a.weight);
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(memory.full + static_cast<uint32_t>(i * 8), 1);
      InitBarrier(memory.empty + static_cast<uint32_t>(i * 8), kFewRowsWarps);
    }
    PublishBarriers();
    PrefetchMap(&a.x);
  }
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.x < kFetching) {
    MultiplyFewRows<Number, kGroup, kMatrices, kPairs, kTeams>(a, work, memory);
  } else {
    if (threadIdx.x == kFetching) FetchFewRows<kPairs>(a, work, memory);
    __syncwarp();
    if (a.plan.cluster > 1) {
      ArriveAtCluster();
      AwaitCluster();
    }
  }
  if (a.plan.cluster == 1) return;
  // Others may still read this block's shared memory.
  ArriveAtCluster();
  AwaitCluster();
#endif
}

using FewRowsKernelPointer = void (*)(FewRowsArguments);

template <class Number, int kGroup, int kMatrices, bool kPairs>
FewRowsKernelPointer FewRowsKernelOf(int32_t teams) {
  if constexpr (kMatrices == 1) {
    if (teams == 4) return FewRowsKernel<Number, kGroup, 1, kPairs, 4>;
  }
  return teams == 1 ? FewRowsKernel<Number, kGroup, kMatrices, kPairs, 1>
                    : FewRowsKernel<Number, kGroup, kMatrices, kPairs, 2>;
}

template <class Number, int kGroup>
FewRowsKernelPointer FewRowsKernelOf(const FewRowsPlan& plan, bool pairs) {
  switch (plan.matrices) {
    case 1:
      return FewRowsKernelOf<Number, kGroup, 1, false>(plan.teams);
    case 2:
      return pairs ? FewRowsKernelOf<Number, kGroup, 2, true>(plan.teams)
                   : FewRowsKernelOf<Number, kGroup, 2, false>(plan.teams);
    case 3:
      return FewRowsKernelOf<Number, kGroup, 3, false>(plan.teams);
    default:
      return pairs ? FewRowsKernelOf<Number, kGroup, 4, true>(plan.teams)
                   : FewRowsKernelOf<Number, kGroup, 4, false>(plan.teams);
  }
}

// The kernel of a plan with or without silu · up.
template <class Number>
FewRowsKernelPointer FewRowsKernelOf(const FewRowsPlan& plan, bool pairs) {
  switch (plan.row_group) {
    case 8:
      return FewRowsKernelOf<Number, 8>(plan, pairs);
    case 16:
      return FewRowsKernelOf<Number, 16>(plan, pairs);
    case 32:
      return FewRowsKernelOf<Number, 32>(plan, pairs);
    default:
      return FewRowsKernelOf<Number, 64>(plan, pairs);
  }
}

// For operands in E4M3 (few_rows_fp8.cu).
FewRowsKernelPointer QuantizedFewRowsKernelOf(const FewRowsPlan& plan, bool pairs);

}  // namespace baton::cuda
