#include <algorithm>
#include <utility>

#include "kernels/cuda/experts/expert_gate.cuh"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/packed/unpack.cuh"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"

// The grouped GEMMs of experts whose weights are packed (packed_format.h). As in grouped_gemm.cu,
// inputs are accumulated in ascending order, so that an output's bits depend on its row and its
// weights alone, and operands pass through a ring of pipeline stages in shared memory. The weights
// are mma.sync's left operand, which lanes unpack in registers; the rows are its columns. A stage
// is a chunk of inputs.
namespace baton::cuda {
namespace {

enum class PackedGemm {
  kGateUp,
  kUp,  // of experts without a gate
  kDown
};

constexpr int kThreads = 128;  // a warp for 16 outputs of a tile
constexpr int32_t kMostStages = 8;
// bf16 numbers of a row of outputs in shared memory, with padding.
constexpr int32_t kOutRowNumbers = kTileOutputs + 8;

struct PackedGemmArgs {
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  int32_t inputs = 0;   // a multiple of 8
  int32_t outputs = 0;  // of a row of `out`; with kGateUp a multiple of kTileOutputs
  PackedFormat format = {};
  const void* const* weights = nullptr;   // per expert
  const float* const* factors = nullptr;  // per expert those of its rows; null: 1
  const float* const* biases = nullptr;   // the same; null: none
  ExpertGate gate = {};
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* slot_rows = nullptr;   // kGateUp, kUp: the row of x for a slot
  const float* slot_weights = nullptr;  // kGateUp, kUp: factors of the products; null: none
  __nv_bfloat16* out = nullptr;         // [slot][outputs]
  int32_t stages = 2;
};

// Where a stage has what: first the rows, then the chunk of each matrix.
struct StageLayout {
  int32_t x_bytes;
  int32_t bytes;

  __host__ __device__ StageLayout(const PackedFormat& format, int32_t rows, int32_t matrices)
      : x_bytes(rows * format.chunk_inputs() * 2),
        bytes((x_bytes + matrices * format.chunk_bytes() + 1023) / 1024 * 1024) {}
};

template <PackedGemm kGemm>
inline constexpr int kMatrices = kGemm == PackedGemm::kGateUp ? 2 : 1;

// What a thread block copies.
template <int kRows, PackedGemm kGemm>
struct PackedSource {
  const std::byte* weights[kMatrices<kGemm>];  // the chunks of a tile of outputs
  const __nv_bfloat16* x[kRows * kSwizzledRowVectors / kThreads];
  bool x_present[kRows * kSwizzledRowVectors / kThreads];

  __device__ PackedSource(const PackedGemmArgs& args, const ExpertTile& tile) {
    const auto* const matrix = static_cast<const std::byte*>(args.weights[tile.expert]);
    const int64_t tile_bytes =
        args.format.chunks(args.inputs) * static_cast<int64_t>(args.format.chunk_bytes());
#pragma unroll
    for (int i = 0; i < kMatrices<kGemm>; ++i) {
      weights[i] = matrix + (blockIdx.x + i * (args.outputs / kTileOutputs)) * tile_bytes;
    }
    constexpr int kStep = kThreads / kSwizzledRowVectors;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int row = static_cast<int>(threadIdx.x) / kSwizzledRowVectors + i * kStep;
      x_present[i] = row < tile.rows;
      int64_t from = tile.first_slot + (x_present[i] ? row : 0);
      if (kGemm != PackedGemm::kDown) from = args.slot_rows[from];
      x[i] = args.x + from * args.x_stride;
    }
  }

  __device__ void CopyWeights(const PackedFormat& format, uint32_t stage, int32_t chunk) const {
    const int32_t bytes = format.chunk_bytes();
#pragma unroll
    for (int i = 0; i < kMatrices<kGemm>; ++i) {
      const std::byte* const from = weights[i] + chunk * static_cast<int64_t>(bytes);
      const uint32_t to = stage + static_cast<uint32_t>(i * bytes);
      for (int32_t at = static_cast<int32_t>(threadIdx.x) * 16; at < bytes; at += kThreads * 16) {
        CopyVector(to + static_cast<uint32_t>(at), from + at, true);
      }
    }
  }

  // The rows' inputs of a tile of kTileInputs, which fill a swizzled row each.
  __device__ void CopyX(uint32_t to, int32_t first_input, int32_t inputs) const {
    constexpr int kStep = kThreads / kSwizzledRowVectors;
    const int vector = static_cast<int>(threadIdx.x) % kSwizzledRowVectors;
    const int32_t input = first_input + vector * 8;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int row = static_cast<int>(threadIdx.x) / kSwizzledRowVectors + i * kStep;
      const bool present = x_present[i] && input < inputs;
      CopyVector(SwizzledVector(to, row, vector), x[i] + (present ? input : 0), present);
    }
  }
};

// Multiplies one tile of kTileInputs. `chunk`: the chunk of the first matrix in shared memory.
template <DType kNumber, ScaleType kScale, int kRows, int kMatrices>
__device__ __forceinline__ void MultiplyTile(const PackedFormat& format,
                                             const unsigned char* chunk,
                                             uint32_t x,
                                             int32_t tile,
                                             float (&sums)[kMatrices][kRows / 8][4]) {
  constexpr int kWords = kWordsOfStep<kNumber>;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t words[kMatrices][4 * kWords];
#pragma unroll
  for (int m = 0; m < kMatrices; ++m) {
    const auto* const numbers = reinterpret_cast<const uint4*>(
        chunk + m * format.chunk_bytes() + format.numbers_offset() + tile * format.tile_bytes());
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint4 four = numbers[(warp * kWords + i) * 32 + lane];
      words[m][4 * i] = four.x;
      words[m][4 * i + 1] = four.y;
      words[m][4 * i + 2] = four.z;
      words[m][4 * i + 3] = four.w;
    }
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
        const int32_t input = tile * kTileInputs + step * 16;
        if (step == 0 || input % format.group == 0) {
          groups[m] = LoadGroup<kNumber, kScale>(
              format, chunk + m * format.chunk_bytes(), input / format.group, warp * 8 + lane / 4);
        }
        uint32_t of_step[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i) of_step[i] = words[m][step * kWords + i];
        uint32_t held[4];
        Unpack<kNumber>(of_step, groups[m], held);
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          MultiplyAdd<__nv_bfloat16>(
              sums[m][j], held, columns[j][2 * half], columns[j][2 * half + 1]);
        }
      }
    }
  }
}

// What is added and multiplied behind the products of one output.
struct OutputTerms {
  float factor = 1;
  float bias = 0;
};

__device__ __forceinline__ OutputTerms TermsOf(const PackedGemmArgs& args,
                                               int32_t expert,
                                               int32_t line) {
  OutputTerms terms;
  if (args.factors != nullptr) terms.factor = args.factors[expert][line];
  if (args.biases != nullptr) terms.bias = args.biases[expert][line];
  return terms;
}

// Writes the tile: through shared memory, so that threads write neighbouring outputs together.
template <int kRows, PackedGemm kGemm>
__device__ __forceinline__ void StoreTile(const PackedGemmArgs& args,
                                          const ExpertTile& tile,
                                          __nv_bfloat16* shared,
                                          float (&sums)[kMatrices<kGemm>][kRows / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kTileOutputs;
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
    const int32_t within = warp * 16 + eight * 8 + lane / 4;
    const int32_t output = min(first_output + within, args.outputs - 1);
    const OutputTerms terms = TermsOf(args, tile.expert, output);
    OutputTerms up;
    if constexpr (kGemm == PackedGemm::kGateUp) {
      up = TermsOf(args, tile.expert, args.outputs + output);
    }
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const int row = j * 8 + lane % 4 * 2 + next;
        float of_slot = 1;
        if (kGemm != PackedGemm::kDown && args.slot_weights != nullptr && row < tile.rows) {
          of_slot = args.slot_weights[tile.first_slot + row];
        }
        const int at = eight * 2 + next;
        float value = sums[0][j][at] * terms.factor * of_slot + terms.bias;
        if constexpr (kGemm == PackedGemm::kGateUp) {
          value = Gated(args.gate, value, sums[1][j][at] * up.factor * of_slot + up.bias);
        } else if constexpr (kGemm == PackedGemm::kUp) {
          value = SquaredRelu(value);
        }
        shared[row * kOutRowNumbers + within] = __float2bfloat16(value);
      }
    }
  }
  __syncthreads();
  for (auto i = static_cast<int32_t>(threadIdx.x); i < tile.rows * kTileOutputs / 8;
       i += kThreads) {
    const int32_t row = i / (kTileOutputs / 8);
    const int32_t output = i % (kTileOutputs / 8) * 8;
    if (first_output + output >= args.outputs) continue;
    *reinterpret_cast<uint4*>(args.out + (tile.first_slot + row) * int64_t{args.outputs} +
                              first_output + output) =
        *reinterpret_cast<const uint4*>(shared + row * kOutRowNumbers + output);
  }
}

// One thread block for each tile of outputs (blockIdx.x) of each tile of rows (blockIdx.y).
template <DType kNumber, ScaleType kScale, int kRows, PackedGemm kGemm>
__global__ void __launch_bounds__(kThreads) MultiplyPacked(const PackedGemmArgs args) {
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
  const PackedFormat& format = args.format;
  const PackedSource<kRows, kGemm> source(args, tile);
  const StageLayout layout(format, kRows, kMatrices<kGemm>);
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const auto chunks = static_cast<int32_t>(format.chunks(args.inputs));
  const auto place_of = [&](int32_t chunk) { return chunk % args.stages * layout.bytes; };
  const auto fetch = [&](int32_t chunk, bool weights) {
    if (chunk < chunks) {
      const uint32_t stage = base + static_cast<uint32_t>(place_of(chunk));
      if (weights) {
        source.CopyWeights(format, stage + static_cast<uint32_t>(layout.x_bytes), chunk);
      }
      for (int32_t t = 0; t < format.tiles_of_chunk(); ++t) {
        source.CopyX(stage + static_cast<uint32_t>(t * kRows * kSwizzledRowBytes),
                     chunk * format.chunk_inputs() + t * kTileInputs,
                     args.inputs);
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  if constexpr (kEarlyWeights) {
    for (int32_t chunk = 0; chunk < min(args.stages - 1, chunks); ++chunk) {
      source.CopyWeights(
          format, base + static_cast<uint32_t>(place_of(chunk) + layout.x_bytes), chunk);
    }
    WaitForPredecessor();
  }
  for (int32_t chunk = 0; chunk < args.stages - 1; ++chunk) fetch(chunk, !kEarlyWeights);
  float sums[kMatrices<kGemm>][kRows / 8][4] = {};
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    WaitForGroups(args.stages - 2);
    __syncthreads();
    fetch(chunk + args.stages - 1, true);
    const int32_t place = place_of(chunk);
    for (int32_t t = 0; t < format.tiles_of_chunk(); ++t) {
      MultiplyTile<kNumber, kScale, kRows, kMatrices<kGemm>>(
          format,
          memory + place + layout.x_bytes,
          base + static_cast<uint32_t>(place + t * kRows * kSwizzledRowBytes),
          t,
          sums);
    }
  }
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  StoreTile<kRows, kGemm>(args, tile, reinterpret_cast<__nv_bfloat16*>(memory), sums);
}

using PackedPointer = void (*)(PackedGemmArgs);

template <int kRows, PackedGemm kGemm>
PackedPointer KernelFor(const PackedFormat& format) {
  switch (format.number) {
    case DType::kU4:
      return MultiplyPacked<DType::kU4, ScaleType::kBF16, kRows, kGemm>;
    case DType::kI8:
      return MultiplyPacked<DType::kI8, ScaleType::kBF16, kRows, kGemm>;
    case DType::kFp8:
      return MultiplyPacked<DType::kFp8, ScaleType::kBF16, kRows, kGemm>;
    default:
      return format.scale == ScaleType::kE8m0
                 ? MultiplyPacked<DType::kFp4, ScaleType::kE8m0, kRows, kGemm>
                 : MultiplyPacked<DType::kFp4, ScaleType::kFp8, kRows, kGemm>;
  }
}

template <int kRows, PackedGemm kGemm>
cudaError_t LaunchTiles(PackedGemmArgs args, int64_t row_tiles, cudaStream_t stream) {
  const StageLayout layout(args.format, kRows, kMatrices<kGemm>);
  args.stages = std::min<int32_t>(kMostStages, kPortableSharedBytes / layout.bytes);
  const int32_t bytes = std::max<int32_t>(args.stages * layout.bytes, kRows * kOutRowNumbers * 2);
  const PackedPointer kernel = KernelFor<kRows, kGemm>(args.format);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(CeilDiv(args.outputs, kTileOutputs), static_cast<uint32_t>(row_tiles));
  return LaunchOverlapped(kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), stream, args);
}

template <PackedGemm kGemm>
cudaError_t LaunchGrouped(PackedGemmArgs args,
                          int64_t rows,
                          const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          cudaStream_t stream) {
  args.tiles = scratch.tiles;
  args.tile_count = scratch.tile_count;
  const int64_t tiles = MaxTiles(experts, rows);
  return TileRows(experts, rows) == 16 ? LaunchTiles<16, kGemm>(args, tiles, stream)
                                       : LaunchTiles<64, kGemm>(args, tiles, stream);
}

}  // namespace

cudaError_t LaunchPackedGateUp(const Tensor& x,
                               const PreparedExperts& experts,
                               const ExpertScratch& scratch,
                               cudaStream_t stream) {
  PackedGemmArgs args;
  args.x = reinterpret_cast<const __nv_bfloat16*>(x.data);
  args.x_stride = x.stride;
  args.inputs = experts.hidden;
  args.outputs = experts.width;
  args.format = experts.gate_up_format;
  args.weights = experts.gate_up;
  args.factors = experts.gate_up_scales;
  args.biases = experts.gate_up_biases;
  args.gate = experts.gate;
  args.slot_rows = scratch.slot_rows;
  args.slot_weights = scratch.slot_weights;
  args.out = scratch.inner;
  if (args.gate.ungated) {
    return LaunchGrouped<PackedGemm::kUp>(args, x.rows, experts, scratch, stream);
  }
  return LaunchGrouped<PackedGemm::kGateUp>(args, x.rows, experts, scratch, stream);
}

cudaError_t LaunchPackedDown(int64_t rows,
                             const PreparedExperts& experts,
                             const ExpertScratch& scratch,
                             cudaStream_t stream) {
  PackedGemmArgs args;
  args.x = scratch.inner;
  args.x_stride = experts.width;
  args.inputs = experts.width;
  args.outputs = experts.hidden;
  args.format = experts.down_format;
  args.weights = experts.down;
  args.factors = experts.down_scales;
  args.biases = experts.down_biases;
  args.out = scratch.results;
  return LaunchGrouped<PackedGemm::kDown>(args, rows, experts, scratch, stream);
}

}  // namespace baton::cuda
