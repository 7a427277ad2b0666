#include <algorithm>

#include "kernels/cuda/experts/packed_store.cuh"
#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/packed/unpack.cuh"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"

// The grouped GEMMs of experts whose weights are packed (packed_format.h). Inputs are accumulated
// in a fixed order, so that an output's bits depend on its row and its weights alone, and operands
// pass through a ring of pipeline stages in shared memory. The weights are mma.sync's left operand,
// which lanes unpack in registers; the rows are its columns. A stage has two chunks of inputs, one
// for each group of warps (packed_store.cuh), whose sums are added at the end.
namespace baton::cuda {
namespace {

constexpr int32_t kMaxStages = 4;

// Where a stage has what: the rows of each group of warps, then the chunks of each group's
// matrices.
struct StagePlaces {
  int32_t x_bytes;        // of a group of warps
  int32_t weights_bytes;  // the same
  int32_t bytes;

  __host__ __device__ StagePlaces(const PackedLayout& layout, int32_t rows, int32_t matrices)
      : x_bytes(rows * layout.chunk_tiles * kSwizzledRowBytes),
        weights_bytes(matrices * layout.chunk_bytes),
        bytes((kPackedSplits * (x_bytes + weights_bytes) + 1023) / 1024 * 1024) {}
};

// What a group of warps copies for its chunks.
template <int kRows, PackedGemm kGemm>
struct PackedSource {
  static constexpr int kStep = kPackedGroupThreads / kSwizzledRowVectors;  // rows copied at a time
  static constexpr int kCopies = CeilDiv(kRows, kStep);

  const unsigned char* weights[kMatrices<kGemm>];  // the chunks of a tile of outputs
  const __nv_bfloat16* x[kCopies];
  bool x_present[kCopies];
  int thread;  // in the group

  __device__ PackedSource(const PackedGemmArgs& args, const ExpertTile& tile)
      : thread(static_cast<int>(threadIdx.x) % kPackedGroupThreads) {
    const auto* const matrix = static_cast<const unsigned char*>(args.weights[tile.expert]);
    const int64_t tile_bytes = int64_t{args.chunks} * args.layout.chunk_bytes;
#pragma unroll
    for (int i = 0; i < kMatrices<kGemm>; ++i) {
      weights[i] = matrix + (blockIdx.x + i * (args.outputs / kTileOutputs)) * tile_bytes;
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = thread / kSwizzledRowVectors + i * kStep;
      x_present[i] = row < tile.rows;
      int64_t from = tile.first_slot + (x_present[i] ? row : 0);
      if (kGemm != PackedGemm::kDown) from = args.slot_rows[from];
      x[i] = args.x + from * args.x_stride;
    }
  }

  __device__ void CopyWeights(const PackedLayout& layout, uint32_t to, int32_t chunk) const {
#pragma unroll
    for (int i = 0; i < kMatrices<kGemm>; ++i) {
      const unsigned char* const from = weights[i] + chunk * int64_t{layout.chunk_bytes};
#pragma unroll 1
      for (int32_t at = thread * 16; at < layout.chunk_bytes; at += kPackedGroupThreads * 16) {
        CopyVector(to + static_cast<uint32_t>(i * layout.chunk_bytes + at), from + at, true);
      }
    }
  }

  // The rows' inputs of a tile of kTileInputs, which fill a swizzled row each.
  __device__ void CopyX(uint32_t to, int32_t first_input, int32_t inputs) const {
    const int vector = thread % kSwizzledRowVectors;
    const int32_t input = first_input + vector * 8;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = thread / kSwizzledRowVectors + i * kStep;
      const bool present = x_present[i] && input < inputs;
      if (row >= kRows) continue;
      CopyVector(SwizzledVector(to, row, vector), x[i] + (present ? input : 0), present);
    }
  }
};

// Multiplies one tile of kTileInputs. `chunk`: the chunk of the first matrix in shared memory.
template <DType kNumber, ScaleType kScale, int kRows, int kMatrices>
__device__ __forceinline__ void MultiplyTile(const PackedLayout& layout,
                                             const unsigned char* chunk,
                                             uint32_t x,
                                             int32_t tile,
                                             float (&sums)[kMatrices][kRows / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t words[kMatrices][4 * kWordsOfStep<kNumber>];
#pragma unroll
  for (int m = 0; m < kMatrices; ++m) {
    LoadWords<kNumber>(layout, chunk + m * layout.chunk_bytes, tile, words[m]);
  }
  GroupOfLane groups[kMatrices];
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {  // of steps of 16 inputs
    uint32_t columns[kRows / 8][4];
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      LoadMatrices(columns[j], SwizzledVector(x, j * 8 + lane % 8, pair * 4 + lane / 8));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = pair * 2 + half;
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        if (step % kStepsOfGroup<kScale> == 0) {
          groups[m] = LoadGroup<kNumber, kScale>(layout,
                                                 chunk + m * layout.chunk_bytes,
                                                 tile * kTileInputs + step * 16,
                                                 warp * 8 + lane / 4);
        }
        uint32_t held[4];
        UnpackStep<kNumber>(words[m], step, groups[m], held);
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          MultiplyAdd<__nv_bfloat16>(
              sums[m][j], held, columns[j][2 * half], columns[j][2 * half + 1]);
        }
      }
    }
  }
}

// One thread block for each tile of outputs (blockIdx.x) of each tile of rows (blockIdx.y).
template <DType kNumber, ScaleType kScale, int kRows, PackedGemm kGemm>
__global__ void __launch_bounds__(kPackedThreads) MultiplyPacked(const PackedGemmArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  // As in MultiplyTiles (grouped_gemm.cu).
  constexpr bool kEarlyWeights = kGemm == PackedGemm::kDown;
  if constexpr (!kEarlyWeights) WaitForPredecessor();
  ReleaseSuccessor();
  if (static_cast<int32_t>(blockIdx.y) >= *args.tile_count) {
    if (blockIdx.y == 0) WaitForPredecessor();
    return;
  }
  const ExpertTile tile = args.tiles[blockIdx.y];
  constexpr int kOfBlock = kMatrices<kGemm>;
  const PackedLayout& weights = args.layout;
  const PackedSource<kRows, kGemm> source(args, tile);
  const StagePlaces places(weights, kRows, kOfBlock);
  const auto group = static_cast<int32_t>(threadIdx.x) / kPackedGroupThreads;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  // Where slot `slot` of the ring has the group's rows and chunks.
  const auto x_at = [&](int32_t slot) { return slot * places.bytes + group * places.x_bytes; };
  const auto weights_at = [&](int32_t slot) {
    return slot * places.bytes + kPackedSplits * places.x_bytes + group * places.weights_bytes;
  };
  const auto copy_weights = [&](int32_t stage, int32_t slot) {
    const int32_t chunk = stage * kPackedSplits + group;
    if (chunk >= args.chunks) return;
    source.CopyWeights(weights, base + static_cast<uint32_t>(weights_at(slot)), chunk);
  };
  const auto copy_x = [&](int32_t stage, int32_t slot) {
    const int32_t chunk = stage * kPackedSplits + group;
    if (chunk >= args.chunks) return;
    const auto to = base + static_cast<uint32_t>(x_at(slot));
#pragma unroll 1
    for (int32_t t = 0; t < weights.chunk_tiles; ++t) {
      source.CopyX(to + static_cast<uint32_t>(t * kRows * kSwizzledRowBytes),
                   (chunk * weights.chunk_tiles + t) * kTileInputs,
                   args.inputs);
    }
  };
  const int32_t stages = CeilDiv(args.chunks, kPackedSplits);
  if constexpr (kEarlyWeights) {
    for (int32_t stage = 0; stage < args.stages - 1; ++stage) copy_weights(stage, stage);
    WaitForPredecessor();
  }
  for (int32_t stage = 0; stage < args.stages - 1; ++stage) {
    if (!kEarlyWeights) copy_weights(stage, stage);
    copy_x(stage, stage);
    asm volatile("cp.async.commit_group;");
  }
  float sums[kOfBlock][kRows / 8][4] = {};
  int32_t slot = 0;
  int32_t free_slot = args.stages - 1;
  for (int32_t stage = 0; stage < stages; ++stage) {
    WaitForGroups(args.stages - 2);
    __syncthreads();
    copy_weights(stage + args.stages - 1, free_slot);
    copy_x(stage + args.stages - 1, free_slot);
    asm volatile("cp.async.commit_group;");
    if (stage * kPackedSplits + group < args.chunks) {
#pragma unroll 1
      for (int32_t t = 0; t < weights.chunk_tiles; ++t) {
        MultiplyTile<kNumber, kScale, kRows, kOfBlock>(
            weights,
            memory + weights_at(slot),
            base + static_cast<uint32_t>(x_at(slot) + t * kRows * kSwizzledRowBytes),
            t,
            sums);
      }
    }
    free_slot = slot;
    slot = slot + 1 == args.stages ? 0 : slot + 1;
  }
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  AddSplits(reinterpret_cast<float*>(memory),
            reinterpret_cast<float(&)[kOfBlock * kRows / 8 * 4]>(sums));
  StoreTile<kRows, kGemm>(args, tile, reinterpret_cast<__nv_bfloat16*>(memory), sums);
}

using PackedPointer = void (*)(PackedGemmArgs);

template <int kRows, PackedGemm kGemm>
PackedPointer KernelFor(const PackedFormat& format) {
  return WithTypesOf(format, [&]<DType kNumber, ScaleType kScale>() -> PackedPointer {
    return MultiplyPacked<kNumber, kScale, kRows, kGemm>;
  });
}

template <int kRows, PackedGemm kGemm>
cudaError_t LaunchTiles(PackedGemmArgs args,
                        const PackedFormat& format,
                        int64_t row_tiles,
                        cudaStream_t stream) {
  const int32_t stage_bytes = StagePlaces(args.layout, kRows, kMatrices<kGemm>).bytes;
  args.stages = std::min<int32_t>(kMaxStages, kPortableSharedBytes / stage_bytes);
  const int32_t bytes = std::max(args.stages * stage_bytes, kStoreBytes<kRows, kGemm>);
  const PackedPointer kernel = KernelFor<kRows, kGemm>(format);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(CeilDiv(args.outputs, kTileOutputs), static_cast<uint32_t>(row_tiles));
  return LaunchOverlapped(
      kernel, grid, dim3(kPackedThreads), static_cast<size_t>(bytes), stream, args);
}

template <PackedGemm kGemm>
cudaError_t LaunchGrouped(const PackedGemmArgs& args,
                          const PackedFormat& format,
                          int64_t rows,
                          const PreparedExperts& experts,
                          cudaStream_t stream) {
  const int64_t tiles = MaxTiles(experts, rows);
  const int32_t tile_rows = TileRows(experts, rows);
  if (FitsPackedRows(args, tile_rows)) {
    return LaunchPackedRows(args, kGemm, format, tile_rows, tiles, stream);
  }
  switch (tile_rows) {
    case kLeastTileRows:
      return LaunchTiles<kLeastTileRows, kGemm>(args, format, tiles, stream);
    case 16:
      return LaunchTiles<16, kGemm>(args, format, tiles, stream);
    default:
      return LaunchTiles<32, kGemm>(args, format, tiles, stream);
  }
}

}  // namespace

PackedGemmArgs ArgsOfGateUp(const Tensor& x,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch) {
  PackedGemmArgs args;
  args.x = reinterpret_cast<const __nv_bfloat16*>(x.data);
  args.x_stride = x.stride;
  args.inputs = experts.hidden;
  args.outputs = experts.width;
  args.layout = LayoutOf(experts.gate_up_format);
  args.chunks = static_cast<int32_t>(experts.gate_up_format.chunks(args.inputs));
  args.weights = experts.gate_up;
  args.factors = experts.gate_up_scales;
  args.biases = experts.gate_up_biases;
  args.gate = experts.gate;
  args.tiles = scratch.tiles;
  args.tile_count = scratch.tile_count;
  args.slot_rows = scratch.slot_rows;
  args.slot_weights = scratch.slot_weights;
  args.out = scratch.inner;
  return args;
}

PackedGemmArgs ArgsOfDown(const PreparedExperts& experts, const ExpertScratch& scratch) {
  PackedGemmArgs args;
  args.x = scratch.inner;
  args.x_stride = experts.width;
  args.inputs = experts.width;
  args.outputs = experts.hidden;
  args.layout = LayoutOf(experts.down_format);
  args.chunks = static_cast<int32_t>(experts.down_format.chunks(args.inputs));
  args.weights = experts.down;
  args.factors = experts.down_scales;
  args.biases = experts.down_biases;
  args.tiles = scratch.tiles;
  args.tile_count = scratch.tile_count;
  args.out = scratch.results;
  return args;
}

cudaError_t LaunchPackedGateUp(const Tensor& x,
                               const PreparedExperts& experts,
                               const ExpertScratch& scratch,
                               cudaStream_t stream) {
  const PackedGemmArgs args = ArgsOfGateUp(x, experts, scratch);
  const PackedFormat& format = experts.gate_up_format;
  return args.gate.ungated
             ? LaunchGrouped<PackedGemm::kUp>(args, format, x.rows, experts, stream)
             : LaunchGrouped<PackedGemm::kGateUp>(args, format, x.rows, experts, stream);
}

cudaError_t LaunchPackedDown(int64_t rows,
                             const PreparedExperts& experts,
                             const ExpertScratch& scratch,
                             cudaStream_t stream) {
  return LaunchGrouped<PackedGemm::kDown>(
      ArgsOfDown(experts, scratch), experts.down_format, rows, experts, stream);
}

}  // namespace baton::cuda
