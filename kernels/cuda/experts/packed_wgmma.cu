#include <algorithm>

#include "kernels/cuda/experts/packed_experts.cuh"
#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/wgmma.cuh"

// The grouped GEMMs of experts with packed weights for Hopper and many rows. A thread block
// computes 128 rows by four tiles of 64 weight rows. Its producer warp group streams chunks of
// inputs through a ring of pipeline stages: weights by bulk copies, rows of x, which may be
// gathered, by cp.async. Each of two consumer warp groups unpacks two of the tiles to registers,
// WGMMA's left operand, and multiplies them by all rows: gate and up of the same 64 outputs, or 128
// outputs of up or down. While a WGMMA runs, the warps unpack the next one's operand.
namespace baton::cuda {
namespace {

constexpr int32_t kRows = kPackedTileRows;
constexpr int32_t kGroupThreads = 128;
constexpr int32_t kConsumers = 2;
constexpr int32_t kProducerThread = kConsumers * kGroupThreads;
constexpr int32_t kThreads = kProducerThread + kGroupThreads;
constexpr int32_t kGroupTiles = 2;  // tiles of weights of a consumer warp group
constexpr int32_t kTiles = kConsumers * kGroupTiles;
constexpr int32_t kMaxStages = 8;
constexpr int32_t kBarrierBytes = 1024;
constexpr int32_t kSharedBytes = 227 << 10;
constexpr int32_t kTileRowBytes = kRows * kSwizzledRowBytes;  // of x for kTileInputs

// Outputs of a thread block's tile, and of one of its consumer warp groups.
template <PackedGemm kGemm>
inline constexpr int32_t kGroupOutputs = kGroupTiles / kMatrices<kGemm>* kTileOutputs;
template <PackedGemm kGemm>
inline constexpr int32_t kBlockOutputs = kConsumers* kGroupOutputs<kGemm>;
// bf16 numbers of a row of a warp group's outputs in shared memory, with padding.
template <PackedGemm kGemm>
inline constexpr int32_t kRowNumbers = kGroupOutputs<kGemm> + 8;

struct Ring {
  int32_t x_bytes;      // of a stage, before the weights
  int32_t stage_bytes;  // a multiple of 1 KiB
  int32_t stages;

  explicit Ring(const PackedLayout& layout)
      : x_bytes(layout.chunk_tiles * kTileRowBytes),
        stage_bytes((x_bytes + kTiles * layout.chunk_bytes + 1023) / 1024 * 1024),
        stages(std::min(kMaxStages, (kSharedBytes - kBarrierBytes) / stage_bytes)) {}
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct RingMemory {
  uint32_t full;   // one barrier for each stage: it has arrived
  uint32_t empty;  // the same: all consumer warps have read it
  uint32_t stages;

  __device__ explicit RingMemory(const unsigned char* shared)
      : full(SharedAddress(shared)), empty(full + kMaxStages * 8), stages(full + kBarrierBytes) {}
  __device__ uint32_t Full(int32_t slot) const { return full + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Empty(int32_t slot) const { return empty + static_cast<uint32_t>(slot * 8); }
};

// The number among the matrix's tiles of outputs of tile `i` of the thread block.
template <PackedGemm kGemm>
__device__ __forceinline__ int32_t WeightTile(const PackedGemmArgs& a, int32_t i) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  if constexpr (kGemm == PackedGemm::kGateUp) {
    return block * kConsumers + i / 2 + i % 2 * (a.outputs / kTileOutputs);
  } else {
    return block * kTiles + i;
  }
}

// Runs on the producer warp group.
template <PackedGemm kGemm>
__device__ __forceinline__ void ProduceStages(const PackedGemmArgs& a,
                                              const Ring& ring,
                                              const ExpertTile& tile,
                                              const RingMemory& memory) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x) - kProducerThread;
  const int32_t vector = thread % kSwizzledRowVectors;
  const int32_t first_row = thread / kSwizzledRowVectors;
  constexpr int32_t kStep = kGroupThreads / kSwizzledRowVectors;
  uint32_t from[kRows / kStep];  // of the thread's rows, in vectors of 16 bytes
#pragma unroll
  for (int32_t i = 0; i < kRows / kStep; ++i) {
    const int32_t row = first_row + i * kStep;
    int64_t x_row = tile.first_slot + (row < tile.rows ? row : 0);
    if (kGemm != PackedGemm::kDown) x_row = a.slot_rows[x_row];
    from[i] = static_cast<uint32_t>(x_row * (a.x_stride / 8) + vector);
  }
  const auto* const x = reinterpret_cast<const uint4*>(a.x);
  const auto* const matrix = static_cast<const std::byte*>(a.weights[tile.expert]);
  const int32_t last_tile = CeilDiv(a.outputs, kTileOutputs) * kMatrices<kGemm> - 1;
  RingCursor cursor;
  for (int32_t chunk = 0; chunk < a.chunks; ++chunk) {
    WaitBarrier(memory.Empty(cursor.slot), cursor.parity ^ 1);
    const uint32_t stage = memory.stages + static_cast<uint32_t>(cursor.slot * ring.stage_bytes);
    if (thread == 0) {
      const auto bytes = static_cast<uint32_t>(a.layout.chunk_bytes);
      ArriveExpectTx(memory.Full(cursor.slot), kTiles * bytes);
#pragma unroll
      for (int32_t i = 0; i < kTiles; ++i) {
        // The products of tiles that the matrix does not have are not stored.
        const int64_t at = int64_t{min(WeightTile<kGemm>(a, i), last_tile)} * a.chunks + chunk;
        BulkCopy(stage + static_cast<uint32_t>(ring.x_bytes) + static_cast<uint32_t>(i) * bytes,
                 matrix + at * a.layout.chunk_bytes,
                 bytes,
                 memory.Full(cursor.slot));
      }
    }
    for (int32_t t = 0; t < a.layout.chunk_tiles; ++t) {
      const int32_t span = chunk * a.layout.chunk_tiles + t;  // of kTileInputs
      const bool present = span * kTileInputs + vector * 8 < a.inputs;
      const uint32_t to = stage + static_cast<uint32_t>(t * kTileRowBytes);
#pragma unroll
      for (int32_t i = 0; i < kRows / kStep; ++i) {
        const int32_t row = first_row + i * kStep;
        if (row >= tile.rows) break;  // nobody reads the products of the other rows
        const uint32_t at = from[i] + (present ? static_cast<uint32_t>(span * 8) : 0);
        CopyVector(SwizzledVector(to, row, vector), x + at, present);
      }
    }
    ArriveAfterCopies(memory.Full(cursor.slot));
    cursor.Advance(1, ring.stages);
  }
}

using Sums = float[kGroupTiles][kRows / 2];

// Multiplies kTileInputs. `chunk`: the chunk of the warp group's first tile.
template <DType kNumber, ScaleType kScale, class Begun>
__device__ __forceinline__ void MultiplyTile(const PackedLayout& layout,
                                             const unsigned char* chunk,
                                             uint32_t x,
                                             int32_t tile,
                                             Sums& sums,
                                             uint32_t (&held)[2][kGroupTiles][4],
                                             const Begun& begun) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 % 4;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint64_t columns = SmemDescriptor(UniformInWarp(x));
  uint32_t words[kGroupTiles][4 * kWordsOfStep<kNumber>];
#pragma unroll
  for (int m = 0; m < kGroupTiles; ++m) {
    LoadWords<kNumber>(layout, chunk + m * layout.chunk_bytes, tile, words[m]);
  }
  GroupOfLane groups[kGroupTiles];
#pragma unroll
  for (int step = 0; step < kTileInputs / 16; ++step) {
#pragma unroll
    for (int m = 0; m < kGroupTiles; ++m) {
      if (step % kStepsOfGroup<kScale> == 0) {
        groups[m] = LoadGroup<kNumber, kScale>(layout,
                                               chunk + m * layout.chunk_bytes,
                                               tile * kTileInputs + step * 16,
                                               warp * 8 + lane / 4);
      }
      // The WGMMAs of two steps before, which read these registers, have completed.
      UnpackStep<kNumber>(words[m], step, groups[m], held[step % 2][m]);
    }
    WgmmaFence();
#pragma unroll
    for (int m = 0; m < kGroupTiles; ++m) {
      WgmmaMultiplyHeld<kRows>(sums[m], held[step % 2][m], columns + step * 2, true);
    }
    WgmmaCommit();
    WgmmaWait<1>();
    if (step == 0) begun();
  }
}

// Writes a warp group's outputs: through shared memory, so that threads write neighbouring outputs
// together.
template <PackedGemm kGemm>
__device__ __forceinline__ void StoreOutputs(const PackedGemmArgs& a,
                                             const ExpertTile& tile,
                                             __nv_bfloat16* shared,
                                             const Sums& sums) {
  const int32_t group = static_cast<int32_t>(threadIdx.x) / kGroupThreads;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % kGroupThreads;
  const int32_t lane = thread % 32;
  const int32_t first_output =
      static_cast<int32_t>(blockIdx.x) * kBlockOutputs<kGemm> + group * kGroupOutputs<kGemm>;
#pragma unroll
  for (int m = 0; m < kGroupTiles / kMatrices<kGemm>; ++m) {
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const int32_t within = m * kTileOutputs + thread / 32 * 16 + eight * 8 + lane / 4;
      const int32_t output = min(first_output + within, a.outputs - 1);
      const OutputTerms terms = TermsOf(a, tile.expert, output);
      OutputTerms up;
      if constexpr (kGemm == PackedGemm::kGateUp) {
        up = TermsOf(a, tile.expert, a.outputs + output);
      }
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const int32_t row = j * 8 + lane % 4 * 2 + next;
          const int at = j * 4 + eight * 2 + next;
          const float value = OutputOf<kGemm>(a,
                                              terms,
                                              up,
                                              FactorOf<kGemm>(a, tile, row),
                                              sums[m][at],
                                              sums[m + kMatrices<kGemm> - 1][at]);
          shared[row * kRowNumbers<kGemm> + within] = __float2bfloat16(value);
        }
      }
    }
  }
  asm volatile("barrier.sync %0, %1;" ::"r"(2 + group), "n"(kGroupThreads) : "memory");
  constexpr int32_t kVectors = kGroupOutputs<kGemm> / 8;
  for (int32_t i = thread; i < tile.rows * kVectors; i += kGroupThreads) {
    const int32_t row = i / kVectors;
    const int32_t output = i % kVectors * 8;
    if (first_output + output >= a.outputs) continue;
    *reinterpret_cast<uint4*>(a.out + (tile.first_slot + row) * int64_t{a.outputs} + first_output +
                              output) =
        *reinterpret_cast<const uint4*>(shared + row * kRowNumbers<kGemm> + output);
  }
}

// Runs on the consumer warp groups.
template <DType kNumber, ScaleType kScale, PackedGemm kGemm>
__device__ __forceinline__ void ConsumeStages(const PackedGemmArgs& a,
                                              const Ring& ring,
                                              const ExpertTile& tile,
                                              unsigned char* shared,
                                              const RingMemory& memory) {
  const int32_t group = static_cast<int32_t>(threadIdx.x) / kGroupThreads;
  const bool arrives = threadIdx.x % 32 == 0;
  Sums sums = {};
  uint32_t held[2][kGroupTiles][4];
  RingCursor cursor;
  int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
  for (int32_t chunk = 0; chunk < a.chunks; ++chunk) {
    WaitBarrier(memory.Full(cursor.slot), cursor.parity);
    FenceAsyncProxy();  // cp.async wrote x through the generic proxy
    const int32_t at = kBarrierBytes + cursor.slot * ring.stage_bytes;
    for (int32_t t = 0; t < a.layout.chunk_tiles; ++t) {
      MultiplyTile<kNumber, kScale>(
          a.layout,
          shared + at + ring.x_bytes + group * kGroupTiles * a.layout.chunk_bytes,
          memory.full + static_cast<uint32_t>(at + t * kTileRowBytes),
          t,
          sums,
          held,
          [&] {
            if (t == 0 && last >= 0 && arrives) Arrive(memory.Empty(last));
          });
    }
    last = cursor.slot;
    cursor.Advance(1, ring.stages);
  }
  WgmmaWait<0>();
  // Both warp groups have read the stages that the outputs overwrite.
  asm volatile("barrier.sync 1, %0;" ::"n"(kProducerThread) : "memory");
  auto* const outputs = reinterpret_cast<__nv_bfloat16*>(shared + kBarrierBytes);
  StoreOutputs<kGemm>(a, tile, outputs + group * kRows * kRowNumbers<kGemm>, sums);
}

#endif

// One thread block for each tile of outputs (blockIdx.x) of each tile of rows (blockIdx.y).
template <DType kNumber, ScaleType kScale, PackedGemm kGemm>
__global__ void __launch_bounds__(kThreads, 1)
    PackedWgmmaKernel(const __grid_constant__ PackedGemmArgs a, const __grid_constant__ Ring ring) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const RingMemory memory(shared);
  if (threadIdx.x == kProducerThread) {
    for (int32_t i = 0; i < ring.stages; ++i) {
      InitBarrier(memory.Full(i), kGroupThreads + 1);
      InitBarrier(memory.Empty(i), kProducerThread / 32);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  WaitForPredecessor();
  ReleaseSuccessor();
  if (static_cast<int32_t>(blockIdx.y) >= *a.tile_count) return;
  const ExpertTile tile = a.tiles[blockIdx.y];
  if (threadIdx.x >= kProducerThread) {
    DecreaseRegisters<40>();
    ProduceStages<kGemm>(a, ring, tile, memory);
  } else {
    IncreaseRegisters<232>();
    ConsumeStages<kNumber, kScale, kGemm>(a, ring, tile, shared, memory);
  }
#endif
}

using PackedPointer = void (*)(PackedGemmArgs, Ring);

template <PackedGemm kGemm>
PackedPointer KernelFor(const PackedFormat& format) {
  return WithTypesOf(format, [&]<DType kNumber, ScaleType kScale>() -> PackedPointer {
    return PackedWgmmaKernel<kNumber, kScale, kGemm>;
  });
}

template <PackedGemm kGemm>
cudaError_t LaunchTiles(const PackedGemmArgs& args,
                        const PackedFormat& format,
                        int64_t row_tiles,
                        cudaStream_t stream) {
  const PackedPointer kernel = KernelFor<kGemm>(format);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(CeilDiv(args.outputs, kBlockOutputs<kGemm>), static_cast<uint32_t>(row_tiles));
  return LaunchOverlapped(
      kernel, grid, dim3(kThreads), size_t{kSharedBytes}, stream, args, Ring(args.layout));
}

}  // namespace

cudaError_t LaunchPackedWgmmaGateUp(const Tensor& x,
                                    const PreparedExperts& experts,
                                    const ExpertScratch& scratch,
                                    cudaStream_t stream) {
  const PackedGemmArgs args = ArgsOfGateUp(x, experts, scratch);
  const PackedFormat& format = experts.gate_up_format;
  const int64_t tiles = MaxTiles(experts, x.rows);
  return args.gate.ungated ? LaunchTiles<PackedGemm::kUp>(args, format, tiles, stream)
                           : LaunchTiles<PackedGemm::kGateUp>(args, format, tiles, stream);
}

cudaError_t LaunchPackedWgmmaDown(int64_t rows,
                                  const PreparedExperts& experts,
                                  const ExpertScratch& scratch,
                                  cudaStream_t stream) {
  return LaunchTiles<PackedGemm::kDown>(
      ArgsOfDown(experts, scratch), experts.down_format, MaxTiles(experts, rows), stream);
}

}  // namespace baton::cuda
