#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/gemm/packed_skinny_plan.h"
#include "kernels/cuda/gemm/skinny_arguments.cuh"
#include "kernels/cuda/gemm/skinny_epilogue.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"

// out[m][n] = Σ x[m][k] · weight[n][k] of a packed weight. For few m, it is bound by the read of
// the packed bytes. The last two warps of a thread block are producers: one streams chunks of the
// weight, by bulk copies, and the other the matching spans of x through a ring of pipeline stages.
// A consumer warp group unpacks tiles of its matrix to registers, the left operand of WGMMA; rows
// of x in shared memory are the columns. The ring fills with weights before the previous kernel has
// finished, and with x after that.
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

// Threads of a thread block: the consumer warp groups, and the two producer warps.
constexpr int32_t PackedThreads(int32_t warp_groups) {
  return SkinnyThreads(warp_groups) + 32;
}

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

// Loads the weights of one stage after the other. Runs on the first lanes of a warp, one for each
// matrix: a single thread would need longer for a stage than the memory.
__device__ __forceinline__ void LoadPackedWeights(const PackedSkinnyArguments& a,
                                                  const SkinnyWork& work,
                                                  const PackedWork& part,
                                                  int32_t matrix) {
  const SkinnyPlan& plan = a.gemm.plan;
  const int32_t half = plan.tile_outputs / kTileOutputs;  // matrices of gate, or all
  const uint32_t stage_bytes = static_cast<uint32_t>(part.stage_chunks) * part.chunk_bytes;
  const uint32_t part_bytes = static_cast<uint32_t>(part.chunks) * part.chunk_bytes;
  const uint32_t ring = part.ring + part.x_bytes + static_cast<uint32_t>(matrix) * stage_bytes;
  RingCursor cursor;
  bool waits = false;
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const int32_t first = (work.first_tile + pass * plan.clusters) * half;
    const int32_t present = min(half, a.half_tiles - first);
    const auto copies = static_cast<uint32_t>(present * (plan.matrices / half));
    const int64_t tile = first + matrix % half + matrix / half * a.half_tiles;
    const std::byte* from =
        a.weight + (tile * a.chunks + part.first_chunk) * static_cast<int64_t>(part.chunk_bytes);
    uint32_t left = part_bytes;
    while (left > 0) {
      const uint32_t bytes = min(left, stage_bytes);
      const uint32_t full = part.Full(cursor.slot);
      // In the first round, the stages are empty.
      if (waits) WaitBarrier(part.Empty(cursor.slot), cursor.parity ^ 1);
      if (matrix == 0) ArriveExpectTx(full, copies * bytes + part.x_bytes);
      if (matrix % half < present) {
        BulkCopy(ring + static_cast<uint32_t>(cursor.slot * plan.stage_bytes), from, bytes, full);
      }
      from += bytes;
      left -= bytes;
      cursor.Advance(1, plan.stages);
      waits = waits || cursor.slot == 0;
    }
  }
}

// Loads the inputs of one stage after the other, on one thread.
__device__ __forceinline__ void LoadPackedInputs(const PackedSkinnyArguments& a,
                                                 const SkinnyWork& work,
                                                 const PackedWork& part) {
  const SkinnyPlan& plan = a.gemm.plan;
  const int32_t first = part.first_chunk * part.tiles_of_chunk;
  RingCursor cursor;
  bool waits = false;
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    for (int32_t stage = 0; stage < part.stages; ++stage) {
      if (waits) WaitBarrier(part.Empty(cursor.slot), cursor.parity ^ 1);
      TmaLoad(part.ring + static_cast<uint32_t>(cursor.slot * plan.stage_bytes),
              &a.gemm.x,
              0,
              0,
              first + stage * plan.spans,
              part.Full(cursor.slot),
              kEvictLast);
      cursor.Advance(1, plan.stages);
      waits = waits || cursor.slot == 0;
    }
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
  // WGMMA takes 32 cycles or more to read its left operand from registers, which is longer than it
  // multiplies few columns. The operands and accumulators of a warp's mma.sync are the same.
  static constexpr bool kWgmma = kColumns > 16;

 public:
  __device__ PackedMultiplier(const PackedSkinnyArguments& a, const PackedWork& part)
      : part_(part),
        numbers_offset_(static_cast<uint32_t>(a.format.numbers_offset())),
        zeros_offset_(a.format.zeros ? static_cast<uint32_t>(a.format.zeros_offset()) : 0) {
    const uint32_t warp = threadIdx.x / 32 % kWarpGroupWarps;
    const uint32_t lane = threadIdx.x % 32;
    pair_ = warp * 8 + lane / 4;
    x_of_lane_ = lane % 8 * kSpanBytes + ((lane / 8) ^ (lane % 8)) * 16;
    numbers_of_lane_ = numbers_offset_ + warp * kWords * 512 + lane * 16;
    auto zero = static_cast<uint32_t>(a.format.zero);
    zero |= zero << (kBytes ? 8 : 4);
    SetZeros<kNumber>(zero, group_);
  }

  // `x` is the start of the stage, `weights` that of the matrix in it.
  __device__ __forceinline__ void Multiply(uint32_t x,
                                           uint32_t weights,
                                           int32_t chunks,
                                           float (&accumulators)[kColumns / 2]) {
    chunk_ = weights;
    last_ = weights + static_cast<uint32_t>(chunks - 1) * part_.chunk_bytes + numbers_of_lane_ +
            static_cast<uint32_t>(part_.tiles_of_chunk - 1) * kTileBytes;
    if constexpr (kWgmma) x = UniformInWarp(x);
    numbers_ = weights + numbers_of_lane_;
    LoadWords();
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      if constexpr (kGroups == 1) LoadGroup(0);
      for (int32_t tile = 0; tile < part_.tiles_of_chunk; ++tile) {
        uint32_t held[kSteps][4];
        if constexpr (kWgmma) WgmmaWait<0>();  // the registers of the previous tile have been read
        UnpackTile(held);
        numbers_ = min(numbers_ + kTileBytes, last_);
        if (tile + 1 == part_.tiles_of_chunk) {
          chunk_ += part_.chunk_bytes;
          numbers_ = min(chunk_ + numbers_of_lane_, last_);
        }
        LoadWords();
        MultiplyTile(held, x, accumulators);
        x += kColumns * kSpanBytes;
      }
    }
    if constexpr (kWgmma) WgmmaWait<0>();
  }

 private:
  // Loads the lane's words of a tile, before they are needed.
  __device__ __forceinline__ void LoadWords() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      LoadShared4(numbers_ + static_cast<uint32_t>(i * 512), words_ + 4 * i);
    }
  }

  __device__ __forceinline__ void UnpackTile(uint32_t (&held)[kSteps][4]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kGroups > 1 && step % (kSteps / kGroups) == 0) {
        LoadGroup(static_cast<uint32_t>(step / (kSteps / kGroups)));
      }
      UnpackStep<kNumber>(words_, step, group_, held[step]);
    }
  }

  // `x`: one span of the rows of x.
  __device__ __forceinline__ void MultiplyTile(const uint32_t (&held)[kSteps][4],
                                               uint32_t x,
                                               float (&accumulators)[kColumns / 2]) {
    if constexpr (kWgmma) {
      const uint64_t descriptor = SmemDescriptor(x);
      WgmmaFence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        // Only the low word changes: additions of 64 bits cost too much.
        const uint32_t low = static_cast<uint32_t>(descriptor) + static_cast<uint32_t>(step * 2);
        WgmmaMultiplyHeld<kColumns>(accumulators, held[step], descriptor >> 32 << 32 | low, true);
      }
      WgmmaCommit();
    } else {
#pragma unroll
      for (int pair = 0; pair < kSteps / 2; ++pair) {
#pragma unroll
        for (int eight = 0; eight < kColumns / 8; ++eight) {
          uint32_t inputs[4];
          LoadMatrices(inputs,
                       (x ^ x_of_lane_ ^ static_cast<uint32_t>(pair * 64)) +
                           static_cast<uint32_t>(eight * 8 * kSpanBytes));
          float(&sums)[4] = *reinterpret_cast<float(*)[4]>(accumulators + 4 * eight);
          MultiplyAdd<__nv_bfloat16>(sums, held[2 * pair], inputs[0], inputs[1]);
          MultiplyAdd<__nv_bfloat16>(sums, held[2 * pair + 1], inputs[2], inputs[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void LoadGroup(uint32_t group) {
    const uint32_t at = group * kPairs + pair_;
    SetMultipliers<kNumber, kScale>(LoadSharedBytes<kScaleOfPair>(chunk_ + at * kScaleOfPair),
                                    group_);
    if constexpr (kIntegers) {
      if (zeros_offset_ == 0) return;
      SetZeros<kNumber>(LoadSharedBytes<kZeroOfPair>(chunk_ + zeros_offset_ + at * kZeroOfPair),
                        group_);
    }
  }

  const PackedWork& part_;
  const uint32_t numbers_offset_;
  const uint32_t zeros_offset_;  // 0: groups have no zero points
  uint32_t pair_;
  uint32_t numbers_of_lane_;  // from the start of a chunk
  GroupOfLane group_ = {};
  // Where ldmatrix of four matrices of 8 × 8 numbers begins in a span: row lane % 8 of matrix
  // lane / 8, in the 128-byte swizzle. Spans begin at multiples of 1 KiB.
  uint32_t x_of_lane_;
  uint32_t words_[kSteps * kWords];
  uint32_t numbers_ = 0;  // where words_ are loaded from
  uint32_t chunk_ = 0;
  uint32_t last_ = 0;  // the lane's words of the stage's last tile
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
      __syncwarp();
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
__global__ void __launch_bounds__(PackedThreads(kPackedMaxWarpGroups), 1)
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
    const auto lane = static_cast<int32_t>(threadIdx.x - producer_thread);
    if (lane < plan.matrices) LoadPackedWeights(a, work, part, lane);
    if (lane == 32) LoadPackedInputs(a, work, part);
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
