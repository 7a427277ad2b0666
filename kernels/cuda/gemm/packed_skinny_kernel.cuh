#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/gemm/packed_skinny_plan.h"
#include "kernels/cuda/gemm/skinny_arguments.cuh"
#include "kernels/cuda/gemm/skinny_epilogue.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/packed/unpack.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k] of a packed weight. For few m, it is bound by the read of
// the packed bytes. The last warp of a thread block is the producer: it streams chunks of the
// weight, by bulk copies, and the matching spans of x through a ring of pipeline stages. A consumer
// warp group unpacks tiles of its matrix to registers, the left operand of WGMMA; rows of x in
// shared memory are the columns. While one warp group waits for its WGMMAs, others unpack. The
// producer fills the ring with weights before it waits for the previous kernel, and loads x after
// that.
namespace baton::cuda {

// The operand type of the epilogue (skinny_epilogue.cuh).
struct PackedNumber {};

struct PackedSkinnyArguments {
  SkinnyArguments gemm;  // without a map of the weight
  const std::byte* weight = nullptr;
  PackedFormat format = {};
  int32_t chunks = 0;      // of the inputs
  int32_t half_tiles = 0;  // of kTileOutputs outputs: those of gate, or all
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A thread block's part of the chunks, and the shared memory: barriers, ring and partial sums.
struct PackedWork {
  int32_t first_chunk;
  int32_t chunks;
  int32_t stage_chunks;
  int32_t stages;  // of a tile
  int32_t tiles_of_chunk;
  uint32_t chunk_bytes;
  uint32_t x_bytes;  // in a stage, before the weights
  uint32_t full;     // one barrier for each stage: its weights and x have arrived
  uint32_t empty;    // one barrier for each stage: its consumer warps have read it
  uint32_t ring;

  __device__ PackedWork(const PackedSkinnyArguments& a,
                        const SkinnyWork& work,
                        const unsigned char* shared) {
    const SkinnyPlan& plan = a.gemm.plan;
    first_chunk = FirstChunk(work.rank, plan.cluster, a.chunks);
    chunks = FirstChunk(work.rank + 1, plan.cluster, a.chunks) - first_chunk;
    stage_chunks = StageChunks(plan, a.format);
    stages = CeilDiv(chunks, stage_chunks);
    tiles_of_chunk = a.format.tiles_of_chunk();
    chunk_bytes = static_cast<uint32_t>(a.format.chunk_bytes());
    x_bytes = static_cast<uint32_t>(plan.spans * plan.row_group * kSpanBytes);
    full = SharedAddress(shared);
    empty = full + kSkinnyMaxStages * 8;
    ring = full + kSkinnyBarrierBytes;
  }
  __device__ uint32_t Full(int32_t slot) const { return full + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Empty(int32_t slot) const { return empty + static_cast<uint32_t>(slot * 8); }
  // The chunks of stage `stage` of a tile; the last one may have fewer.
  __device__ int32_t ChunksOf(int32_t stage) const {
    return min(stage_chunks, chunks - stage * stage_chunks);
  }
};

// Loads one stage after the other, on one thread of the producer warp.
class PackedProducer {
 public:
  __device__ PackedProducer(const PackedSkinnyArguments& a,
                            const SkinnyWork& work,
                            const PackedWork& part)
      : a_(a), work_(work), part_(part) {}

  __device__ void LoadWeight(int32_t slot) {
    const SkinnyPlan& plan = a_.gemm.plan;
    const int32_t chunks = part_.ChunksOf(stage_);
    const uint32_t bytes = static_cast<uint32_t>(chunks) * part_.chunk_bytes;
    const int32_t half = plan.tile_outputs / kTileOutputs;  // matrices of gate, or all
    const int32_t first = (work_.first_tile + pass_ * plan.clusters) * half;
    const int32_t present = min(half, a_.half_tiles - first);
    const int32_t halves = plan.matrices / half;
    const uint32_t barrier = part_.Full(slot);
    ArriveExpectTx(barrier, static_cast<uint32_t>(present * halves) * bytes + part_.x_bytes);
    uint32_t to = part_.ring + static_cast<uint32_t>(slot * plan.stage_bytes) + part_.x_bytes;
    const int64_t chunk = part_.first_chunk + stage_ * part_.stage_chunks;
    for (int32_t i = 0; i < halves; ++i) {
      for (int32_t matrix = 0; matrix < half; ++matrix) {
        if (matrix < present) {
          const int64_t tile = i * a_.half_tiles + first + matrix;
          const int64_t at = (tile * a_.chunks + chunk) * part_.chunk_bytes;
          BulkCopy(to, a_.weight + at, bytes, barrier);
        }
        to += static_cast<uint32_t>(part_.stage_chunks) * part_.chunk_bytes;
      }
    }
    if (++stage_ == part_.stages) {
      stage_ = 0;
      ++pass_;
    }
  }
  __device__ void LoadInput(int32_t slot) {
    const SkinnyPlan& plan = a_.gemm.plan;
    const int32_t chunk = part_.first_chunk + input_stage_ * part_.stage_chunks;
    TmaLoad(part_.ring + static_cast<uint32_t>(slot * plan.stage_bytes),
            &a_.gemm.x,
            0,
            0,
            chunk * part_.tiles_of_chunk,
            part_.Full(slot),
            kEvictLast);
    if (++input_stage_ == part_.stages) input_stage_ = 0;
  }

 private:
  const PackedSkinnyArguments& a_;
  const SkinnyWork& work_;
  const PackedWork& part_;
  int32_t stage_ = 0;
  int32_t pass_ = 0;
  int32_t input_stage_ = 0;
};

__device__ __forceinline__ void ProducePackedStages(const PackedSkinnyArguments& a,
                                                    const SkinnyWork& work,
                                                    const PackedWork& part) {
  const int32_t total = work.passes * part.stages;
  const int32_t early = min(a.gemm.plan.stages, total);
  PackedProducer producer(a, work, part);
  for (int32_t slot = 0; slot < early; ++slot) producer.LoadWeight(slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) producer.LoadInput(slot);
  RingCursor cursor;
  for (int32_t i = early; i < total; ++i) {
    WaitBarrier(part.Empty(cursor.slot), cursor.parity);
    producer.LoadWeight(cursor.slot);
    producer.LoadInput(cursor.slot);
    cursor.Advance(1, a.gemm.plan.stages);
  }
}

template <int kBytes>
__device__ __forceinline__ uint32_t LoadSharedBytes(uint32_t address) {
  uint32_t v;
  if constexpr (kBytes == 4) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  } else if constexpr (kBytes == 2) {
    asm volatile("{ .reg .u16 h; ld.shared.u16 h, [%1]; cvt.u32.u16 %0, h; }"
                 : "=r"(v)
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("{ .reg .u16 h; ld.shared.u8 h, [%1]; cvt.u32.u16 %0, h; }"
                 : "=r"(v)
                 : "r"(address)
                 : "memory");
  }
  return v;
}

__device__ __forceinline__ void LoadShared4(uint32_t address, uint32_t* to) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Multiplies stages of one matrix on a warp group. kGroups: the groups along a tile's inputs, 1, 2
// or 4.
template <DType kNumber, ScaleType kScale, int kGroups, int kColumns>
class PackedMultiplier {
  static constexpr int kWords = kWordsOfStep<kNumber>;
  static constexpr int kSteps = kTileInputs / 16;
  static constexpr bool kBytes = kWords == 2;
  static constexpr bool kIntegers = kNumber == DType::kU4 || kNumber == DType::kI8;
  static constexpr uint32_t kTileBytes = kTileOutputs * kTileInputs / (kBytes ? 1 : 2);
  static constexpr uint32_t kScaleOfPair = kScale == ScaleType::kBF16 ? 4 : 2;
  static constexpr uint32_t kZeroOfPair = kBytes ? 2 : 1;
  static constexpr uint32_t kPairs = kTileOutputs / 2;

 public:
  __device__ PackedMultiplier(const PackedSkinnyArguments& a, const PackedWork& part)
      : part_(part),
        numbers_offset_(static_cast<uint32_t>(a.format.numbers_offset())),
        zeros_offset_(a.format.zeros ? static_cast<uint32_t>(a.format.zeros_offset()) : 0) {
    const uint32_t warp = threadIdx.x / 32 % kWarpGroupWarps;
    const uint32_t lane = threadIdx.x % 32;
    pair_ = warp * 8 + lane / 4;
    numbers_of_lane_ = numbers_offset_ + warp * kWords * 512 + lane * 16;
    auto zero = static_cast<uint32_t>(a.format.zero);
    zero |= zero << (kBytes ? 8 : 4);
    SetZeros<kNumber>(zero, group_);
  }

  // `x` is the start of the stage, `weights` that of the matrix in it.
  __device__ void Multiply(uint32_t x,
                           uint32_t weights,
                           int32_t chunks,
                           float (&accumulators)[kColumns / 2]) {
    uint64_t inputs = SmemDescriptor(UniformInWarp(x));
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      if constexpr (kGroups == 1) LoadGroup(weights, 0);
      uint32_t numbers = weights + numbers_of_lane_;
      for (int32_t tile = 0; tile < part_.tiles_of_chunk; ++tile) {
        uint32_t words[kSteps * kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          LoadShared4(numbers + static_cast<uint32_t>(i * 512), words + 4 * i);
        }
        // The registers of the previous tile have been read.
        WgmmaWait<0>();
        uint32_t held[kSteps][4];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (kGroups > 1 && step % (kSteps / kGroups) == 0) {
            LoadGroup(weights, static_cast<uint32_t>(step / (kSteps / kGroups)));
          }
          uint32_t of_step[kWords];
#pragma unroll
          for (int i = 0; i < kWords; ++i) of_step[i] = words[step * kWords + i];
          Unpack<kNumber>(of_step, group_, held[step]);
        }
        WgmmaFence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          WgmmaMultiplyHeld<kColumns>(
              accumulators, held[step], inputs + static_cast<uint64_t>(step * 2), true);
        }
        WgmmaCommit();
        inputs += kColumns * kSpanBytes >> 4;
        numbers += kTileBytes;
      }
      weights += part_.chunk_bytes;
    }
    WgmmaWait<0>();
  }

 private:
  __device__ __forceinline__ void LoadGroup(uint32_t chunk, uint32_t group) {
    const uint32_t at = group * kPairs + pair_;
    SetMultipliers<kNumber, kScale>(LoadSharedBytes<kScaleOfPair>(chunk + at * kScaleOfPair),
                                    group_);
    if constexpr (kIntegers) {
      if (zeros_offset_ == 0) return;
      SetZeros<kNumber>(LoadSharedBytes<kZeroOfPair>(chunk + zeros_offset_ + at * kZeroOfPair),
                        group_);
    }
  }

  const PackedWork& part_;
  const uint32_t numbers_offset_;
  const uint32_t zeros_offset_;  // 0: groups have no zero points
  uint32_t pair_;
  uint32_t numbers_of_lane_;  // from the start of a chunk
  GroupOfLane group_ = {};
};

// Runs on the consumer warps.
template <DType kNumber, ScaleType kScale, int kGroups, int kColumns>
__device__ __forceinline__ void ConsumePackedStages(const PackedSkinnyArguments& args,
                                                    const SkinnyWork& work,
                                                    const PackedWork& part) {
  const SkinnyArguments& a = args.gemm;
  const SkinnyPlan& plan = a.plan;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto warp_group = static_cast<int32_t>(UniformInWarp(threadIdx.x / (kWarpGroupWarps * 32)));
  const int32_t threads = plan.warp_groups * kWarpGroupWarps * 32;
  const int32_t matrix = warp_group % plan.matrices;
  const int32_t parts = plan.warp_groups / plan.matrices;
  const int32_t half = plan.tile_outputs / kTileOutputs;
  const bool pairs = plan.matrices > half;
  const SkinnyPartials layout(plan, pairs);
  const uint32_t sums = part.ring + static_cast<uint32_t>(plan.partials_offset);
  const uint32_t my_sums =
      sums +
      static_cast<uint32_t>(warp_group / plan.matrices * layout.group_bytes +
                            matrix / half * layout.half_bytes + matrix % half * kTileOutputs * 4);
  const uint32_t my_weights =
      part.x_bytes + static_cast<uint32_t>(matrix * part.stage_chunks) * part.chunk_bytes;
  PackedMultiplier<kNumber, kScale, kGroups, kColumns> multiplier(args, part);
  int32_t round = warp_group / plan.matrices;  // stage, counted over all passes
  RingCursor cursor;
  cursor.Advance(round, plan.stages);
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const SkinnySlice slice(plan, work, work.first_tile + pass * plan.clusters);
    // Loaded early, so that it arrives while the GEMM is computed.
    float4 addend = make_float4(0, 0, 0, 0);
    if (slice.Has(a, thread)) addend = LoadAddend(a, slice.Row(thread), slice.Output(thread));
    float accumulators[1][kColumns / 2];
#pragma unroll
    for (int e = 0; e < kColumns / 2; ++e) accumulators[0][e] = 0;
    for (; round < (pass + 1) * part.stages; round += parts) {
      WaitBarrier(part.Full(cursor.slot), cursor.parity);
      const uint32_t stage = part.ring + static_cast<uint32_t>(cursor.slot * plan.stage_bytes);
      multiplier.Multiply(
          stage, stage + my_weights, part.ChunksOf(round - pass * part.stages), accumulators[0]);
      if (thread % 32 == 0) Arrive(part.Empty(cursor.slot));
      cursor.Advance(parts, plan.stages);
    }
    SyncThreads(1, threads);  // all warp groups have read what the partial sums overwrite
    StorePartialTile<kColumns, 1, false>(plan, my_sums, accumulators);
    if (plan.cluster == 1) {
      SyncThreads(1, threads);
    } else {
      ClusterArrive();
      ClusterWait();
    }
    const auto reduce = [&](uint32_t at, int32_t group_bytes) {
      return ReducePartials(plan, at, group_bytes, parts);
    };
    if (pairs) {
      StoreSlice<PackedNumber, true>(a, slice, sums, addend, threads, reduce);
    } else {
      StoreSlice<PackedNumber, false>(a, slice, sums, addend, threads, reduce);
    }
  }
}

#endif

// Number and scale are those of the format, kGroups is the number of groups along 64 inputs and
// kColumns the plan's row_group.
template <DType kNumber, ScaleType kScale, int kGroups, int kColumns>
__global__ void __launch_bounds__(SkinnyThreads(kPackedMaxWarpGroups), 1)
    PackedSkinnyKernel(const __grid_constant__ PackedSkinnyArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const SkinnyPlan& plan = a.gemm.plan;
  const SkinnyWork work(a.gemm);
  const PackedWork part(a, work, shared);
  const auto producer_thread = static_cast<uint32_t>(plan.warp_groups * kWarpGroupWarps * 32);
  if (threadIdx.x == producer_thread) {
    const auto readers = static_cast<uint32_t>(plan.matrices * kWarpGroupWarps);
    for (int32_t i = 0; i < plan.stages; ++i) {
      InitBarrier(part.Full(i), 1);
      InitBarrier(part.Empty(i), readers);
    }
    FenceBarrierInit();
    PrefetchMap(&a.gemm.x);
  }
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.x < producer_thread) {
    ConsumePackedStages<kNumber, kScale, kGroups, kColumns>(a, work, part);
  } else {
    if (threadIdx.x == producer_thread) ProducePackedStages(a, work, part);
    __syncwarp();
    if (plan.cluster > 1) {
      ClusterArrive();
      ClusterWait();
    }
  }
  if (plan.cluster == 1) return;
  // Other blocks of the cluster may still read this block's shared memory.
  ClusterArrive();
  ClusterWait();
#endif
}

using PackedSkinnyPointer = void (*)(PackedSkinnyArguments);

template <DType kNumber, ScaleType kScale, int kGroups>
PackedSkinnyPointer PackedSkinnyFor(int32_t row_group) {
  switch (row_group) {
    case 8:
      return PackedSkinnyKernel<kNumber, kScale, kGroups, 8>;
    case 16:
      return PackedSkinnyKernel<kNumber, kScale, kGroups, 16>;
    case 32:
      return PackedSkinnyKernel<kNumber, kScale, kGroups, 32>;
    default:
      return PackedSkinnyKernel<kNumber, kScale, kGroups, 64>;
  }
}

// The kernel for a group of `group` inputs and a plan's row_group.
template <DType kNumber, ScaleType kScale>
PackedSkinnyPointer PackedSkinnyFor(int32_t group, int32_t row_group) {
  if (group == 16) return PackedSkinnyFor<kNumber, kScale, 4>(row_group);
  if (group == 32) return PackedSkinnyFor<kNumber, kScale, 2>(row_group);
  return PackedSkinnyFor<kNumber, kScale, 1>(row_group);
}

// The kernels of each number type (packed_skinny_*.cu).
PackedSkinnyPointer PackedSkinnyOfU4(const PackedFormat& format, int32_t row_group);
PackedSkinnyPointer PackedSkinnyOfI8(const PackedFormat& format, int32_t row_group);
PackedSkinnyPointer PackedSkinnyOfFp8(const PackedFormat& format, int32_t row_group);
PackedSkinnyPointer PackedSkinnyOfFp4(const PackedFormat& format, int32_t row_group);

}  // namespace baton::cuda
