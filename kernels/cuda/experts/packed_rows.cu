#include <algorithm>

#include "kernels/cuda/experts/packed_store.cuh"
#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/packed/unpack.cuh"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"

// The grouped GEMMs of experts with packed weights and few rows, whose time is that of reading and
// unpacking the weights. Warps load their weights from global memory straight to registers, several
// tiles ahead, and share only the rows, which lie in shared memory with all their inputs. So no
// warp waits for another one. A row has the bits that packed_gemm.cu gives it.
namespace baton::cuda {
namespace {

constexpr int kAhead = 4;  // tiles that a warp has loaded ahead

// A lane's part of one tile of one matrix.
template <DType kNumber, ScaleType kScale>
struct LaneTile {
  static constexpr int kVectors = kWordsOfStep<kNumber>;
  static constexpr int kGroups = 4 / kStepsOfGroup<kScale>;

  uint4 numbers[kVectors];
  uint32_t scales[kGroups];
  uint32_t zeros[kGroups];
};

__device__ __forceinline__ uint4 LoadOnce(const unsigned char* from) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(from));
  return v;
}

template <DType kNumber, ScaleType kScale>
__device__ __forceinline__ void Load(const PackedLayout& layout,
                                     const unsigned char* chunk,
                                     int32_t tile,
                                     LaneTile<kNumber, kScale>& to) {
  using Tile = LaneTile<kNumber, kScale>;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 % 4;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t pair = warp * 8 + lane / 4;
  const unsigned char* const numbers = chunk + layout.numbers_offset + tile * layout.tile_bytes;
#pragma unroll
  for (int i = 0; i < Tile::kVectors; ++i) {
    to.numbers[i] = LoadOnce(numbers + ((warp * Tile::kVectors + i) * 32 + lane) * 16);
  }
#pragma unroll
  for (int i = 0; i < Tile::kGroups; ++i) {
    const int32_t group =
        (tile * kTileInputs + i * (kTileInputs / Tile::kGroups)) >> layout.group_shift;
    const unsigned char* const scales = chunk + group * layout.scale_bytes;
    to.scales[i] = kScale == ScaleType::kBF16
                       ? __ldg(reinterpret_cast<const uint32_t*>(scales) + pair)
                       : uint32_t{__ldg(reinterpret_cast<const uint16_t*>(scales) + pair)};
    if constexpr (kNumber == DType::kU4 || kNumber == DType::kI8) {
      to.zeros[i] = layout.zeros;
      if (layout.zero_bytes == 0) continue;
      const unsigned char* const zeros = chunk + layout.zeros_offset + group * layout.zero_bytes;
      to.zeros[i] = kNumber == DType::kI8
                        ? uint32_t{__ldg(reinterpret_cast<const uint16_t*>(zeros) + pair)}
                        : uint32_t{__ldg(zeros + pair)};
    }
  }
}

// Multiplies one tile. `x`: its rows in shared memory.
template <DType kNumber, ScaleType kScale, int kRows, int kMatrices>
__device__ __forceinline__ void Multiply(const LaneTile<kNumber, kScale> (&tiles)[kMatrices],
                                         uint32_t x,
                                         float (&sums)[kMatrices][kRows / 8][4]) {
  using Tile = LaneTile<kNumber, kScale>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
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
          SetMultipliers<kNumber, kScale>(tiles[m].scales[step / kStepsOfGroup<kScale>], groups[m]);
          SetZeros<kNumber>(tiles[m].zeros[step / kStepsOfGroup<kScale>], groups[m]);
        }
        const uint4 four = tiles[m].numbers[step * Tile::kVectors / 4];
        uint32_t words[Tile::kVectors];
        if constexpr (Tile::kVectors == 1) {
          words[0] = step == 0 ? four.x : step == 1 ? four.y : step == 2 ? four.z : four.w;
        } else {
          words[0] = step % 2 == 0 ? four.x : four.z;
          words[1] = step % 2 == 0 ? four.y : four.w;
        }
        uint32_t held[4];
        Unpack<kNumber>(words, groups[m], held);
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          MultiplyAdd<__nv_bfloat16>(
              sums[m][j], held, columns[j][2 * half], columns[j][2 * half + 1]);
        }
      }
    }
  }
}

// Copies all inputs of the tile's rows to shared memory: [tile of inputs][row][128 bytes],
// swizzled.
template <int kRows, PackedGemm kGemm>
__device__ __forceinline__ void CopyRows(const PackedGemmArgs& args,
                                         const ExpertTile& tile,
                                         uint32_t to) {
  const auto vector = static_cast<int32_t>(threadIdx.x) % kSwizzledRowVectors;
  const int32_t spans = args.chunks * args.layout.chunk_tiles;
  for (int32_t line = static_cast<int32_t>(threadIdx.x) / kSwizzledRowVectors; line < spans * kRows;
       line += kPackedThreads / kSwizzledRowVectors) {
    const int32_t row = line % kRows;
    const int32_t input = line / kRows * kTileInputs + vector * 8;
    const bool present = row < tile.rows && input < args.inputs;
    int64_t from = tile.first_slot + (row < tile.rows ? row : 0);
    if (kGemm != PackedGemm::kDown) from = args.slot_rows[from];
    CopyVector(SwizzledVector(to, line, vector),
               args.x + from * args.x_stride + (present ? input : 0),
               present);
  }
  asm volatile("cp.async.commit_group;");
}

template <DType kNumber, ScaleType kScale, int kRows, PackedGemm kGemm>
__global__ void __launch_bounds__(kPackedThreads) MultiplyRows(const PackedGemmArgs args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  // As in MultiplyTiles (grouped_gemm.cu).
  constexpr bool kEarlyWeights = kGemm == PackedGemm::kDown;
  if constexpr (!kEarlyWeights) WaitForPredecessor();
  ReleaseSuccessor();
  if (static_cast<int32_t>(blockIdx.y) >= *args.tile_count) {
    if (blockIdx.y == 0) WaitForPredecessor();
    return;
  }
  constexpr int kOfBlock = kMatrices<kGemm>;
  const ExpertTile tile = args.tiles[blockIdx.y];
  const PackedLayout& layout = args.layout;
  const auto group = static_cast<int32_t>(threadIdx.x) / kPackedGroupThreads;
  const auto* const matrix = static_cast<const unsigned char*>(args.weights[tile.expert]);
  const int64_t tile_bytes = int64_t{args.chunks} * layout.chunk_bytes;
  const unsigned char* weights[kOfBlock];
#pragma unroll
  for (int m = 0; m < kOfBlock; ++m) {
    weights[m] = matrix + (blockIdx.x + m * (args.outputs / kTileOutputs)) * tile_bytes;
  }
  // The group's tiles of inputs, by their number: those of its chunks.
  const int32_t shift = layout.chunk_tiles - 1;  // of one or two tiles
  const int32_t count = (args.chunks - group + 1) / kPackedSplits << shift;
  LaneTile<kNumber, kScale> tiles[kAhead][kOfBlock];
  const auto load = [&](int32_t number, LaneTile<kNumber, kScale>(&into)[kOfBlock]) {
    if (number >= count) return;
    const int32_t chunk = (number >> shift) * kPackedSplits + group;
#pragma unroll
    for (int m = 0; m < kOfBlock; ++m) {
      Load(layout, weights[m] + int64_t{chunk} * layout.chunk_bytes, number & shift, into[m]);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(i, tiles[i]);
  if constexpr (kEarlyWeights) WaitForPredecessor();
  const auto x = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  CopyRows<kRows, kGemm>(args, tile, x);
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  float sums[kOfBlock][kRows / 8][4] = {};
  for (int32_t first = 0; first < count; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t number = first + i;
      if (number >= count) break;
      const int32_t chunk = (number >> shift) * kPackedSplits + group;
      const int32_t span = (chunk << shift) + (number & shift);
      Multiply<kNumber, kScale, kRows, kOfBlock>(
          tiles[i], x + static_cast<uint32_t>(span * kRows * kSwizzledRowBytes), sums);
      load(number + kAhead, tiles[i]);
    }
  }
  __syncthreads();  // all warps have read the rows that the sums overwrite
  AddSplits(reinterpret_cast<float*>(memory),
            reinterpret_cast<float(&)[kOfBlock * kRows / 8 * 4]>(sums));
  StoreTile<kRows, kGemm>(args, tile, reinterpret_cast<__nv_bfloat16*>(memory), sums);
}

using RowsPointer = void (*)(PackedGemmArgs);

template <int kRows, PackedGemm kGemm>
RowsPointer KernelFor(const PackedFormat& format) {
  return WithTypesOf(format, [&]<DType kNumber, ScaleType kScale>() -> RowsPointer {
    return MultiplyRows<kNumber, kScale, kRows, kGemm>;
  });
}

int32_t BytesOfRows(const PackedGemmArgs& args, int32_t tile_rows) {
  return args.chunks * args.layout.chunk_tiles * tile_rows * kSwizzledRowBytes;
}

template <int kRows, PackedGemm kGemm>
cudaError_t Launch(const PackedGemmArgs& args,
                   const PackedFormat& format,
                   int64_t row_tiles,
                   cudaStream_t stream) {
  const int32_t bytes = std::max(BytesOfRows(args, kRows), kStoreBytes<kRows, kGemm>);
  const RowsPointer kernel = KernelFor<kRows, kGemm>(format);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(CeilDiv(args.outputs, kTileOutputs), static_cast<uint32_t>(row_tiles));
  return LaunchOverlapped(
      kernel, grid, dim3(kPackedThreads), static_cast<size_t>(bytes), stream, args);
}

}  // namespace

bool FitsPackedRows(const PackedGemmArgs& args, int32_t tile_rows) {
  return tile_rows <= 16 && BytesOfRows(args, tile_rows) <= int32_t{kPortableSharedBytes};
}

cudaError_t LaunchPackedRows(const PackedGemmArgs& args,
                             PackedGemm gemm,
                             const PackedFormat& format,
                             int32_t tile_rows,
                             int64_t row_tiles,
                             cudaStream_t stream) {
  const auto launch = [&]<int kRows>() {
    switch (gemm) {
      case PackedGemm::kGateUp:
        return Launch<kRows, PackedGemm::kGateUp>(args, format, row_tiles, stream);
      case PackedGemm::kUp:
        return Launch<kRows, PackedGemm::kUp>(args, format, row_tiles, stream);
      default:
        return Launch<kRows, PackedGemm::kDown>(args, format, row_tiles, stream);
    }
  };
  return tile_rows == kLeastTileRows ? launch.operator()<kLeastTileRows>()
                                     : launch.operator()<16>();
}

}  // namespace baton::cuda
