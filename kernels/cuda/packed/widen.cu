#include <algorithm>

#include "kernels/cuda/packed/load_group.cuh"
#include "kernels/cuda/packed/unpack.cuh"
#include "kernels/cuda/packed/widen.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;  // a warp for 16 outputs of a tile
constexpr int32_t kTilesOfBlock = 8;
// bf16 numbers of a row of a tile in shared memory, with padding.
constexpr int32_t kRowNumbers = kTileInputs + 8;

struct WidenArguments {
  PackedWeights weights;
  int64_t first_row = 0;
  int64_t rows = 0;
  __nv_bfloat16* out = nullptr;
  PackedLayout layout = {};
  int32_t chunks = 0;
};

__device__ uint32_t TimesFactor(uint32_t pair, float factor) {
  const __nv_bfloat162 product = __floats2bfloat162_rn(
      __uint_as_float(pair << 16) * factor, __uint_as_float(pair & 0xffff0000u) * factor);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Writes 16 outputs × kTileInputs weights of a tile to the warp's shared memory.
template <DType kNumber, ScaleType kScale>
__device__ void UnpackTile(const WidenArguments& a,
                           const unsigned char* chunk,
                           int32_t tile,
                           int64_t row,
                           __nv_bfloat16* to) {
  const auto warp = static_cast<int32_t>(threadIdx.x) / 32;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  const PackedWeights& weights = a.weights;
  uint32_t words[4 * kWordsOfStep<kNumber>];
  LoadWords<kNumber>(a.layout, chunk, tile, words);
  GroupOfLane group;
#pragma unroll
  for (int step = 0; step < kTileInputs / 16; ++step) {
    if (step % kStepsOfGroup<kScale> == 0) {
      group = LoadGroup<kNumber, kScale>(
          a.layout, chunk, tile * kTileInputs + step * 16, warp * 8 + lane / 4);
    }
    uint32_t held[4];
    UnpackStep<kNumber>(words, step, group, held);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (weights.factors != nullptr) {
        const int64_t output = row + lane / 4 + i % 2 * 8;
        held[i] = TimesFactor(held[i], output < weights.rows ? weights.factors[output] : 0);
      }
      const int32_t col = step * 16 + i / 2 * 8 + lane % 4 * 2;
      *reinterpret_cast<uint32_t*>(to + (lane / 4 + i % 2 * 8) * kRowNumbers + col) = held[i];
    }
  }
}

// A thread block takes kTilesOfBlock tiles of inputs of 64 outputs.
template <DType kNumber, ScaleType kScale>
__global__ void __launch_bounds__(kThreads) WidenKernel(const __grid_constant__ WidenArguments a) {
  __shared__ __align__(16) __nv_bfloat16 shared[kTileOutputs * kRowNumbers];
  const int64_t cols = a.weights.cols;
  const auto warp = static_cast<int32_t>(threadIdx.x) / 32;
  const auto lane = static_cast<int32_t>(threadIdx.x) % 32;
  __nv_bfloat16* const mine = shared + warp * 16 * kRowNumbers;
  const int64_t out_row = static_cast<int64_t>(blockIdx.x) * kTileOutputs + warp * 16;
  const int32_t first = static_cast<int32_t>(blockIdx.y) * kTilesOfBlock;
  const auto* const outputs =
      reinterpret_cast<const unsigned char*>(a.weights.data) +
      (a.first_row / kTileOutputs + blockIdx.x) * int64_t{a.chunks} * a.layout.chunk_bytes;
  for (int32_t tile = first; tile < min(first + kTilesOfBlock, a.chunks * a.layout.chunk_tiles);
       ++tile) {
    const int32_t chunk = a.layout.chunk_tiles == 1 ? tile : tile / 2;
    UnpackTile<kNumber, kScale>(a,
                                outputs + chunk * int64_t{a.layout.chunk_bytes},
                                tile - chunk * a.layout.chunk_tiles,
                                a.first_row + out_row,
                                mine);
    __syncwarp();
    for (int32_t i = lane; i < 16 * kTileInputs / 8; i += 32) {
      const int64_t row = out_row + i / 8;
      const int64_t col = int64_t{tile} * kTileInputs + i % 8 * 8;
      if (row < a.rows && col < cols) {
        *reinterpret_cast<uint4*>(a.out + row * cols + col) =
            *reinterpret_cast<const uint4*>(mine + i / 8 * kRowNumbers + i % 8 * 8);
      }
    }
    __syncwarp();
  }
}

using WidenPointer = void (*)(WidenArguments);

WidenPointer KernelFor(const PackedFormat& format) {
  return WithTypesOf(format, [&]<DType kNumber, ScaleType kScale>() -> WidenPointer {
    return WidenKernel<kNumber, kScale>;
  });
}

}  // namespace

cudaError_t LaunchWiden(const PackedWeights& weights,
                        int64_t first_row,
                        int64_t rows,
                        __nv_bfloat16* out,
                        cudaStream_t stream) {
  const PackedFormat& format = weights.format;
  const int64_t tiles = format.chunks(weights.cols) * format.tiles_of_chunk();
  const dim3 blocks(static_cast<unsigned>(format.tiles(rows)),
                    static_cast<unsigned>(CeilDiv(tiles, kTilesOfBlock)));
  KernelFor(format)<<<blocks, kThreads, 0, stream>>>(
      {weights,
       first_row,
       rows,
       out,
       LayoutOf(format),
       static_cast<int32_t>(format.chunks(weights.cols))});
  return cudaGetLastError();
}

}  // namespace baton::cuda
