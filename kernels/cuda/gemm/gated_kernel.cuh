#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/gemm/gated_plan.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/wgmma.cuh"
#include "kernels/cuda/rows/silu.cuh"

// out[m][i] = silu(x[m] · gate[i]) · (x[m] · up[i]). The last warp of a thread block is the
// producer: it streams tiles of the weight and x through a ring of pipeline stages. Each consumer
// warp group multiplies 64 rows of x by the whole tile. Rows of x are the rows of the accumulators.
// A tile can therefore have the width that divides the outputs evenly among the blocks, and a
// thread holds both accumulators of an output, gate and up. The producer fills the ring with
// weights before it waits for the previous kernel, and loads x after that.
namespace baton::cuda {

struct GatedArguments {
  CUtensorMap weight;               // [gate | up]; a box is columns / 2 rows × one span
  CUtensorMap x;                    // a box is x_rows rows × one span
  const float* x_scales = nullptr;  // of FP8 operands, like weight_scales
  const float* weight_scales = nullptr;
  __nv_bfloat16* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t outputs = 0;
  GatedPlan plan;
};

// Threads of a thread block: a consumer warp group for each row block, and the producer warp.
constexpr int32_t GatedThreads(int32_t row_blocks) {
  return row_blocks * 128 + 32;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The ring in shared memory. For each of its spans, a stage holds the tile's weights, then the rows
// of x.
template <int kRowBlocks, int kColumns>
struct GatedRing {
  static constexpr int32_t kSpans = GatedSpans(kRowBlocks, kColumns);
  static constexpr uint32_t kBytes = GatedSpanBytes(kRowBlocks, kColumns);
  static constexpr uint32_t kXAt = kColumns * kSpanBytes;

  uint32_t full;   // one barrier for each stage: its weights and x have arrived
  uint32_t empty;  // one barrier for each stage: all consumer warps of the cluster have read it
  uint32_t stages;

  __device__ explicit GatedRing(const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kGatedMaxStages * 8),
        stages(full + kGatedBarrierBytes) {}
  __device__ uint32_t Full(int32_t slot) const { return full + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Empty(int32_t slot) const { return empty + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Span(int32_t slot, int32_t span) const {
    return stages + static_cast<uint32_t>(slot * kSpans + span) * kBytes;
  }
};

// The tiles and the rows of x that this thread block computes. An item is a tile or, with kX, two
// neighbouring tiles.
struct GatedWork {
  int32_t rank;   // of the thread block in the cluster
  int32_t first;  // first item of the cluster
  int32_t passes;
  int32_t first_row;
  int32_t end_row;

  __device__ explicit GatedWork(const GatedArguments& a) {
    const GatedPlan& plan = a.plan;
    rank = static_cast<int32_t>(blockIdx.x) % plan.cluster();
    first = static_cast<int32_t>(blockIdx.x) / plan.cluster();
    const int32_t item = CeilDiv(plan.tiles, plan.neighbours());
    passes = CeilDiv(item - first, plan.clusters);
    const bool halves = plan.multicast == GatedMulticast::kWeights;
    first_row = halves ? rank * plan.x_rows : 0;
    end_row = halves ? min(first_row + plan.x_rows, a.rows) : a.rows;
  }
  __device__ int32_t Tile(const GatedPlan& plan, int32_t pass) const {
    const int32_t item = first + pass * plan.clusters;
    return plan.multicast == GatedMulticast::kX ? item * 2 + rank : item;
  }
};

// Runs on one thread of the producer warp.
template <int kRowBlocks, int kColumns>
__device__ __forceinline__ void ProduceStages(const GatedArguments& a,
                                              const GatedWork& work,
                                              const GatedRing<kRowBlocks, kColumns>& ring) {
  constexpr int32_t kSpans = ring.kSpans;
  constexpr int32_t kHalf = kColumns / 2;
  const GatedPlan& plan = a.plan;
  const bool multicasts_x = plan.multicast == GatedMulticast::kX;
  const bool multicasts_weights = plan.multicast == GatedMulticast::kWeights;
  const int32_t total = work.passes * plan.stages_per_tile;
  const auto stage_bytes =
      static_cast<uint32_t>(kSpans * (kColumns + plan.neighbours() * plan.x_rows) * kSpanBytes);
  int32_t pass = 0;
  int32_t round = 0;
  const auto load_weight = [&](int32_t slot) {
    const uint32_t barrier = ring.Full(slot);
    ArriveExpectTx(barrier, stage_bytes);
    const int32_t gate = work.Tile(plan, pass) * kHalf;
#pragma unroll
    for (int32_t i = 0; i < kSpans; ++i) {
      const int32_t span = round * kSpans + i;
#pragma unroll
      for (int32_t half = 0; half < 2; ++half) {
        const uint32_t to = ring.Span(slot, i) + static_cast<uint32_t>(half * kHalf * kSpanBytes);
        const int32_t line = half * a.outputs + gate;
        if (!multicasts_weights) {
          TmaLoad(to, &a.weight, 0, line, span, barrier, kEvictNormal);
        } else if (half == work.rank) {
          TmaLoadMulticast(to, &a.weight, 0, line, span, barrier, kEvictNormal);
        }
      }
    }
    if (++round == plan.stages_per_tile) {
      round = 0;
      ++pass;
    }
  };
  int32_t x_round = 0;
  const auto load_x = [&](int32_t slot) {
    const int32_t first_row = work.rank * plan.x_rows;
    const int32_t line = multicasts_x ? first_row : 0;  // row of x within the stage
#pragma unroll
    for (int32_t i = 0; i < kSpans; ++i) {
      const uint32_t to = ring.Span(slot, i) + ring.kXAt + static_cast<uint32_t>(line * kSpanBytes);
      const int32_t span = x_round * kSpans + i;
      if (multicasts_x) {
        TmaLoadMulticast(to, &a.x, 0, first_row, span, ring.Full(slot), kEvictLast);
      } else {
        TmaLoad(to, &a.x, 0, first_row, span, ring.Full(slot), kEvictLast);
      }
    }
    if (++x_round == plan.stages_per_tile) x_round = 0;
  };

  const int32_t early = min(plan.stages, total);
  // Multicast loads signal barriers of both blocks, so both must have initialised theirs.
  if (multicasts_weights) ClusterWait();
  for (int32_t slot = 0; slot < early; ++slot) load_weight(slot);
  if (multicasts_x) ClusterWait();
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) load_x(slot);
  RingCursor cursor;
  for (int32_t i = early; i < total; ++i) {
    WaitBarrier(ring.Empty(cursor.slot), cursor.parity);
    load_weight(cursor.slot);
    load_x(cursor.slot);
    cursor.Advance(1, plan.stages);
  }
}

// The weight scales of two neighbouring outputs; 1 for bf16.
template <class Number>
__device__ __forceinline__ float2 WeightScales(const GatedArguments& a, int32_t output) {
  if constexpr (kIsFp8<Number>) {
    return *reinterpret_cast<const float2*>(a.weight_scales + output);
  }
  return make_float2(1, 1);
}

// Applies scales and silu · up to a tile's accumulators and writes the outputs. Of every eight
// columns of gate, a thread holds two columns in two rows, and the same of up.
template <class Number, int kColumns>
__device__ __forceinline__ void StoreTile(const GatedArguments& a,
                                          int32_t block_row,
                                          int32_t end_row,
                                          int32_t tile,
                                          const float (&accumulators)[kColumns / 2]) {
  constexpr int kGroups = kColumns / 16;
  const auto thread = static_cast<int32_t>(threadIdx.x) % 128;
  const int32_t first_row = block_row + thread / 32 * 16 + thread % 32 / 4;
  const int32_t first_output = tile * (kColumns / 2) + thread % 4 * 2;
  float row_scales[2] = {1, 1};
  if constexpr (kIsFp8<Number>) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = first_row + half * 8;
      if (row < end_row) row_scales[half] = a.x_scales[row];
    }
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int32_t output = first_output + group * 8;
    if (output >= a.outputs) continue;
    const float2 gates = WeightScales<Number>(a, output);
    const float2 ups = WeightScales<Number>(a, a.outputs + output);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = first_row + half * 8;
      if (row >= end_row) continue;
      const int gate = group * 4 + half * 2;
      const int up = gate + kGroups * 4;
      const float scale = row_scales[half];
      *reinterpret_cast<__nv_bfloat162*>(a.out + row * a.out_stride + output) =
          __floats2bfloat162_rn(
              SiluMul(accumulators[gate] * (scale * gates.x), accumulators[up] * (scale * ups.x)),
              SiluMul(accumulators[gate + 1] * (scale * gates.y),
                      accumulators[up + 1] * (scale * ups.y)));
    }
  }
}

// Prefetches a tile's weight scales into the L2 cache, so that the epilogue finds them there.
template <int kColumns>
__device__ __forceinline__ void PrefetchScales(const GatedArguments& a, int32_t tile) {
  constexpr int32_t kHalf = kColumns / 2;
  constexpr int32_t kSector = 8;  // scales in 32 bytes
  const int32_t output = tile * kHalf + static_cast<int32_t>(threadIdx.x) * kSector;
  if (output >= min((tile + 1) * kHalf, a.outputs)) return;
  PrefetchToL2(a.weight_scales + output);
  PrefetchToL2(a.weight_scales + a.outputs + output);
}

// Runs on each consumer warp group.
template <class Number, int kRowBlocks, int kColumns>
__device__ __forceinline__ void ConsumeStages(const GatedArguments& a,
                                              const GatedWork& work,
                                              const GatedRing<kRowBlocks, kColumns>& ring) {
  const GatedPlan& plan = a.plan;
  const int32_t row_block = static_cast<int32_t>(threadIdx.x) / 128;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t x_at = ring.kXAt + static_cast<uint32_t>(row_block * kGatedRowBlock * kSpanBytes);
  const auto release = [&](int32_t slot) {
    if (plan.cluster() == 1) {
      if (lane == 0) Arrive(ring.Empty(slot));
    } else if (lane < plan.cluster()) {
      ArriveRemote(MapToRank(ring.Empty(slot), static_cast<uint32_t>(lane)));
    }
  };
  RingCursor cursor;
  if (plan.cluster() > 1) ClusterWait();
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    if constexpr (kIsFp8<Number>) PrefetchScales<kColumns>(a, work.Tile(plan, pass));
    float accumulators[kColumns / 2];
#pragma unroll
    for (float& sum : accumulators) sum = 0;
    int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
    for (int32_t round = 0; round < plan.stages_per_tile; ++round) {
      WaitBarrier(ring.Full(cursor.slot), cursor.parity);
      WgmmaFence();
      // Unrolled, because ptxas adds an empty WGMMA behind a loop of WGMMAs, and the next one would
      // have to wait for it.
#pragma unroll
      for (int32_t span = 0; span < ring.kSpans; ++span) {
        const uint64_t weight = SmemDescriptor(ring.Span(cursor.slot, span));
        const uint64_t x = SmemDescriptor(ring.Span(cursor.slot, span) + x_at);
#pragma unroll
        for (int step = 0; step < kSpanSteps; ++step) {
          WgmmaMultiply<kColumns, Number>(accumulators, x + step * 2, weight + step * 2);
        }
      }
      WgmmaCommit();
      // The WGMMAs of the previous stage have completed, so that its slot can be refilled.
      WgmmaWait<1>();
      if (last >= 0) release(last);
      last = cursor.slot;
      cursor.Advance(1, plan.stages);
    }
    WgmmaWait<0>();
    release(last);
    StoreTile<Number, kColumns>(a,
                                work.first_row + row_block * kGatedRowBlock,
                                work.end_row,
                                work.Tile(plan, pass),
                                accumulators);
  }
}

#endif

// Number is the type of the operands.
template <class Number, int kRowBlocks, int kColumns>
__global__ void __launch_bounds__(GatedThreads(kRowBlocks), 1)
    GatedKernel(const __grid_constant__ GatedArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const GatedRing<kRowBlocks, kColumns> ring(shared);
  const GatedWork work(a);
  constexpr int32_t kProducerThread = kRowBlocks * 128;
  if (threadIdx.x == kProducerThread) {
    PrefetchMap(&a.weight);
    PrefetchMap(&a.x);
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(ring.Full(i), 1);
      InitBarrier(ring.Empty(i), static_cast<uint32_t>(kRowBlocks * 4 * a.plan.cluster()));
    }
    FenceBarrierInit();
  }
  __syncthreads();
  ReleaseSuccessor();
  if (a.plan.cluster() > 1) ClusterArrive();
  if (threadIdx.x < kProducerThread) {
    ConsumeStages<Number, kRowBlocks, kColumns>(a, work, ring);
  } else {
    if (threadIdx.x == kProducerThread) {
      ProduceStages<kRowBlocks, kColumns>(a, work, ring);
    } else if (a.plan.cluster() > 1) {
      ClusterWait();
    }
    __syncwarp();
  }
  if (a.plan.cluster() == 1) return;
  // The other block may still arrive at the barriers in this block's shared memory.
  ClusterArrive();
  ClusterWait();
#endif
}

using GatedKernelPointer = void (*)(GatedArguments);

template <class Number, int kRowBlocks, int kColumns>
GatedKernelPointer GatedKernelFor() {
  if constexpr (kColumns > GatedMaxColumns(kRowBlocks)) {
    return nullptr;  // no plan has such a tile
  } else {
    return GatedKernel<Number, kRowBlocks, kColumns>;
  }
}

template <class Number, int kRowBlocks>
GatedKernelPointer GatedKernelFor(int32_t columns) {
  switch (columns) {
    case 64:
      return GatedKernelFor<Number, kRowBlocks, 64>();
    case 96:
      return GatedKernelFor<Number, kRowBlocks, 96>();
    case 112:
      return GatedKernelFor<Number, kRowBlocks, 112>();
    case 128:
      return GatedKernelFor<Number, kRowBlocks, 128>();
    case 192:
      return GatedKernelFor<Number, kRowBlocks, 192>();
    case 224:
      return GatedKernelFor<Number, kRowBlocks, 224>();
    default:
      return GatedKernelFor<Number, kRowBlocks, 256>();
  }
}

// The kernel for a plan.
template <class Number>
GatedKernelPointer GatedKernelFor(const GatedPlan& plan) {
  switch (plan.row_blocks) {
    case 1:
      return GatedKernelFor<Number, 1>(plan.columns);
    case 2:
      return GatedKernelFor<Number, 2>(plan.columns);
    case 3:
      return GatedKernelFor<Number, 3>(plan.columns);
    default:
      return GatedKernelFor<Number, 4>(plan.columns);
  }
}

// The same for FP8 operands (gated_gemm_fp8.cu).
GatedKernelPointer Fp8GatedKernelFor(const GatedPlan& plan);

}  // namespace baton::cuda
