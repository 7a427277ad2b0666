#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/gemm/skinny_arguments.cuh"
#include "kernels/cuda/gemm/skinny_epilogue.cuh"
#include "kernels/cuda/gemm/skinny_plan.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k]. For few m, it is bound by the read of the weight. The last
// warp of a thread block is the producer: it streams tiles of the weight and the matching spans of
// x through a ring of pipeline stages. One to four consumer warp groups multiply them: rows of the
// weight are the rows of the accumulators, rows of x their columns. The producer fills the ring
// with weights before it waits for the previous kernel, and loads x after that.
namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The shared memory of a thread block: barriers, ring, and sums that warps transpose or add up.
struct SkinnyMemory {
  uint32_t full;   // one barrier for each stage: its weights and x have arrived
  uint32_t empty;  // one barrier for each stage: its consumer warps have read it
  uint32_t ring;
  uint32_t staging;       // where StoreTile transposes complete sums
  uint32_t accumulators;  // the partial sums of StorePartialTile

  __device__ SkinnyMemory(const SkinnyPlan& plan, const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kSkinnyMaxStages * 8),
        ring(full + kSkinnyBarrierBytes),
        staging(ring + static_cast<uint32_t>(plan.stages * plan.stage_bytes)),
        accumulators(ring + static_cast<uint32_t>(plan.partials_offset)) {}
  __device__ uint32_t Stage(const SkinnyPlan& plan, int32_t slot) const {
    return ring + static_cast<uint32_t>(slot * plan.stage_bytes);
  }
};

// Runs on one thread of the producer warp.
template <bool kPairs>
__device__ __forceinline__ void ProduceStages(const SkinnyArguments& a,
                                              const SkinnyWork& work,
                                              const SkinnyMemory& memory) {
  const SkinnyPlan& plan = a.plan;
  const int32_t total = work.passes * plan.stages_per_tile;
  int32_t output = work.first_tile * plan.tile_outputs;
  int32_t weight_span = work.first_span;
  int32_t round = 0;
  const auto load_weight = [&](int32_t slot) {
    const uint32_t barrier = memory.full + static_cast<uint32_t>(slot * 8);
    const uint32_t to = memory.Stage(plan, slot);
    ArriveExpectTx(barrier, static_cast<uint32_t>(plan.stage_bytes));
    TmaLoad(to, &a.weight, 0, output, weight_span, barrier, kEvictNormal);
    if (kPairs) {
      TmaLoad(to + static_cast<uint32_t>(plan.weight_bytes / 2),
              &a.weight,
              0,
              a.outputs + output,
              weight_span,
              barrier,
              kEvictNormal);
    }
    weight_span += plan.spans;
    if (++round == plan.stages_per_tile) {
      round = 0;
      weight_span = work.first_span;
      output += plan.clusters * plan.tile_outputs;
    }
  };
  int32_t input_round = 0;
  const auto load_input = [&](int32_t slot) {
    TmaLoad(memory.Stage(plan, slot) + static_cast<uint32_t>(plan.weight_bytes),
            &a.x,
            0,
            0,
            work.first_span + input_round * plan.spans,
            memory.full + static_cast<uint32_t>(slot * 8),
            kEvictLast);
    if (++input_round == plan.stages_per_tile) input_round = 0;
  };

  const int32_t early = min(plan.stages, total);
  for (int32_t slot = 0; slot < early; ++slot) load_weight(slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) load_input(slot);
  RingCursor cursor;
  for (int32_t i = early; i < total; ++i) {
    WaitBarrier(memory.empty + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
    load_weight(cursor.slot);
    load_input(cursor.slot);
    cursor.Advance(1, plan.stages);
  }
}

// Multiplies a stage into the accumulators; with kPairs, the second half of the matrices is up's.
// Commits the WGMMAs of each span as a group of their own, because ptxas otherwise adds an empty
// WGMMA behind the loop. Calls `begun` when the WGMMAs of the first span are under way.
template <class Number, int kGroup, int kMatrices, bool kPairs, class Begun>
__device__ __forceinline__ void MultiplyStage(const SkinnyPlan& plan,
                                              uint32_t stage,
                                              float (&accumulators)[kMatrices][kGroup / 2],
                                              const Begun& begun) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const auto blocks = [](int32_t bytes) { return static_cast<uint64_t>(bytes >> 4); };
  const uint64_t span_blocks = blocks(plan.tile_outputs * kSpanBytes);
  const uint64_t up = blocks(plan.weight_bytes / 2);
  stage = UniformInWarp(stage);
  uint64_t weight = SmemDescriptor(stage);
  uint64_t x = SmemDescriptor(stage + static_cast<uint32_t>(plan.weight_bytes));
  for (int32_t span = 0; span < plan.spans; ++span) {
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < kSpanSteps; ++step) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i) {
        const uint64_t at = weight + static_cast<uint64_t>(step * 2) + (i >= kHalf ? up : 0) +
                            blocks(i % kHalf * kWgmmaRows * kSpanBytes);
        WgmmaMultiply<kGroup, Number>(accumulators[i], at, x + static_cast<uint64_t>(step * 2));
      }
    }
    WgmmaCommit();
    if (span == 0) begun();
    weight += span_blocks;
    x += blocks(kGroup * kSpanBytes);
  }
}

// A barrier for all consumer warp groups of the thread block, without the producer warp.
template <int kWarpGroups>
__device__ __forceinline__ void SyncWarpGroups() {
  asm volatile("barrier.sync 1, %0;" ::"n"(kWarpGroups * kWarpGroupWarps * 32) : "memory");
}

// Runs on the consumer warps. The warp groups consume stages in turn.
template <class Number, int kGroup, int kMatrices, bool kPairs, int kWarpGroups>
__device__ __forceinline__ void ConsumeStages(const SkinnyArguments& a,
                                              const SkinnyWork& work,
                                              const SkinnyMemory& memory) {
  const SkinnyPlan& plan = a.plan;
  const SkinnyPartials layout(plan, kPairs);
  const int32_t warp_group = static_cast<int32_t>(threadIdx.x) / (kWarpGroupWarps * 32);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const bool arrives = threadIdx.x % 32 == 0;
  const auto empty_of = [&](int32_t slot) {
    return memory.empty + static_cast<uint32_t>(slot * 8);
  };
  int32_t round = warp_group;  // stage, counted over all passes
  RingCursor cursor;
  cursor.Advance(warp_group, plan.stages);
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const int32_t tile = work.first_tile + pass * plan.clusters;
    const SkinnySlice slice(plan, work, tile);
    // Loaded early, so that it arrives while the GEMM is computed.
    float4 addend = make_float4(0, 0, 0, 0);
    if (plan.splits_k() && slice.Has(a, thread)) {
      addend = LoadAddend(a, slice.Row(thread), slice.Output(thread));
    }
    float accumulators[kMatrices][kGroup / 2];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
#pragma unroll
      for (int e = 0; e < kGroup / 2; ++e) accumulators[i][e] = 0;
    }
    [[maybe_unused]] int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
    for (; round < (pass + 1) * plan.stages_per_tile; round += kWarpGroups) {
      WaitBarrier(memory.full + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
      const auto begun = [&] {
        if constexpr (kWarpGroups == 1) {
          // The previous stage has been read when only this stage's WGMMAs are pending.
          WgmmaWait<1>();
          if (arrives && last >= 0) Arrive(empty_of(last));
          last = cursor.slot;
        }
      };
      MultiplyStage<Number, kGroup, kMatrices, kPairs>(
          plan, memory.Stage(plan, cursor.slot), accumulators, begun);
      if constexpr (kWarpGroups > 1) {
        // A stage is released before the warp group's next stage arrives, because the ring may be
        // too short to hold both for all warp groups.
        WgmmaWait<0>();
        if (arrives) Arrive(empty_of(cursor.slot));
      }
      cursor.Advance(kWarpGroups, plan.stages);
    }
    if constexpr (kWarpGroups == 1) {
      WgmmaWait<0>();
      if (arrives) Arrive(empty_of(last));
    }
    if (!plan.splits_k()) {
      StoreTile<Number, kGroup, kMatrices, kPairs>(
          a, memory.staging, tile * plan.tile_outputs, accumulators);
      continue;
    }
    SyncWarpGroups<kWarpGroups>();  // all warp groups have read what the partial sums overwrite
    StorePartialTile<kGroup, kMatrices, kPairs>(
        plan,
        memory.accumulators + static_cast<uint32_t>(warp_group * layout.group_bytes),
        accumulators);
    if (plan.cluster == 1) {
      SyncWarpGroups<kWarpGroups>();
    } else {
      ClusterArrive();
      ClusterWait();
    }
    StoreSlice<Number, kPairs>(a,
                               slice,
                               memory.accumulators,
                               addend,
                               kWarpGroups * kWarpGroupWarps * 32,
                               [&](uint32_t at, int32_t group_bytes) {
                                 return ReducePartials<kWarpGroups>(plan, at, group_bytes);
                               });
  }
}

#endif

// Number is the type of the operands; kGroup, kMatrices and kWarpGroups are the plan's row_group,
// matrices and warp_groups.
template <class Number, int kGroup, int kMatrices, bool kPairs, int kWarpGroups>
__global__ void __launch_bounds__(SkinnyThreads(kWarpGroups), 1)
    SkinnyKernel(const __grid_constant__ SkinnyArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const SkinnyMemory memory(a.plan, shared);
  const SkinnyWork work(a);
  constexpr int32_t kProducerThread = kWarpGroups * kWarpGroupWarps * 32;
  if (threadIdx.x == kProducerThread) {
    PrefetchMap(&a.weight);
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(memory.full + static_cast<uint32_t>(i * 8), 1);
      InitBarrier(memory.empty + static_cast<uint32_t>(i * 8), kWarpGroupWarps);
    }
    FenceBarrierInit();
    PrefetchMap(&a.x);
  }
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.x < kProducerThread) {
    ConsumeStages<Number, kGroup, kMatrices, kPairs, kWarpGroups>(a, work, memory);
  } else {
    if (threadIdx.x == kProducerThread) ProduceStages<kPairs>(a, work, memory);
    __syncwarp();
    if (a.plan.cluster > 1) {
      ClusterArrive();
      ClusterWait();
    }
  }
  if (a.plan.cluster == 1) return;
  // Other blocks of the cluster may still read this block's shared memory.
  ClusterArrive();
  ClusterWait();
#endif
}

using SkinnyKernelPointer = void (*)(SkinnyArguments);

template <class Number, int kGroup, int kMatrices, bool kPairs>
SkinnyKernelPointer SkinnyKernelFor(int32_t warp_groups) {
  if constexpr (kMatrices == 1) {
    if (warp_groups == 4) return SkinnyKernel<Number, kGroup, 1, kPairs, 4>;
  }
  return warp_groups == 1 ? SkinnyKernel<Number, kGroup, kMatrices, kPairs, 1>
                          : SkinnyKernel<Number, kGroup, kMatrices, kPairs, 2>;
}

template <class Number, int kGroup>
SkinnyKernelPointer SkinnyKernelFor(const SkinnyPlan& plan, bool pairs) {
  switch (plan.matrices) {
    case 1:
      return SkinnyKernelFor<Number, kGroup, 1, false>(plan.warp_groups);
    case 2:
      return pairs ? SkinnyKernelFor<Number, kGroup, 2, true>(plan.warp_groups)
                   : SkinnyKernelFor<Number, kGroup, 2, false>(plan.warp_groups);
    case 3:
      return SkinnyKernelFor<Number, kGroup, 3, false>(plan.warp_groups);
    default:
      return pairs ? SkinnyKernelFor<Number, kGroup, 4, true>(plan.warp_groups)
                   : SkinnyKernelFor<Number, kGroup, 4, false>(plan.warp_groups);
  }
}

// The kernel for a plan; `pairs`: with silu · up.
template <class Number>
SkinnyKernelPointer SkinnyKernelFor(const SkinnyPlan& plan, bool pairs) {
  switch (plan.row_group) {
    case 8:
      return SkinnyKernelFor<Number, 8>(plan, pairs);
    case 16:
      return SkinnyKernelFor<Number, 16>(plan, pairs);
    case 32:
      return SkinnyKernelFor<Number, 32>(plan, pairs);
    default:
      return SkinnyKernelFor<Number, 64>(plan, pairs);
  }
}

// The same for FP8 operands (skinny_gemm_fp8.cu).
SkinnyKernelPointer Fp8SkinnyKernelFor(const SkinnyPlan& plan, bool pairs);

}  // namespace baton::cuda
