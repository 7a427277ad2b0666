#include "kernels/cuda/packed/pack_weights.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// The zero point of a group as numbers are stored.
__device__ int32_t ZeroOf(const RawWeights& raw,
                          const PackedFormat& format,
                          int64_t row,
                          int64_t group) {
  if (!format.zeros) return format.zero;
  return row < raw.rows && group < raw.groups ? raw.zeros[row * raw.groups + group] : 0;
}

// A number as it is stored; beyond the matrix, the zero point.
__device__ uint32_t NumberOf(const RawWeights& raw,
                             const PackedFormat& format,
                             int64_t row,
                             int64_t col) {
  if (row >= raw.rows || col >= raw.cols) {
    return static_cast<uint32_t>(ZeroOf(raw, format, row, col / format.group));
  }
  if (format.has_bytes()) {
    const auto byte = static_cast<uint32_t>(raw.numbers[row * raw.cols + col]);
    return format.number == DType::kI8 ? byte ^ 0x80 : byte;
  }
  const auto byte = static_cast<uint32_t>(raw.numbers[row * ((raw.cols + 1) / 2) + col / 2]);
  return byte >> (col % 2 * 4) & 15;
}

// A thread block writes one chunk of one tile of outputs.
__global__ void PackKernel(RawWeights raw, PackedFormat format, std::byte* to) {
  const int64_t chunks = format.chunks(raw.cols);
  const int64_t first_row = blockIdx.x / chunks * kTileOutputs;
  const int64_t chunk = blockIdx.x % chunks;
  const int64_t first_col = chunk * format.chunk_inputs();
  std::byte* const at = to + static_cast<int64_t>(blockIdx.x) * format.chunk_bytes();
  const auto thread = static_cast<int32_t>(threadIdx.x);

  const int32_t groups = format.groups_of_chunk();
  const int32_t bytes = format.scale == ScaleType::kBF16 ? 2 : 1;
  for (int32_t i = thread; i < groups * kTileOutputs; i += kThreads) {
    const int32_t output = i % kTileOutputs;
    const int64_t row = first_row + output;
    const int64_t group = chunk * groups + i / kTileOutputs;
    const bool has = row < raw.rows && group < raw.groups;
    const int32_t place = PairOf(output) * 2 + HalfOfPair(output);
    std::byte* const scale = at + i / kTileOutputs * format.scale_bytes() + place * bytes;
    for (int32_t b = 0; b < bytes; ++b) {
      scale[b] = has ? raw.scales[(row * raw.groups + group) * bytes + b] : std::byte{0};
    }
    if (!format.zeros) continue;
    std::byte* const zeros = at + format.zeros_offset() + i / kTileOutputs * format.zero_bytes();
    const int32_t zero = ZeroOf(raw, format, row, group);
    if (format.has_bytes()) {
      zeros[place] = static_cast<std::byte>(zero);
    } else if (HalfOfPair(output) == 0) {
      const int32_t other = ZeroOf(raw, format, row + 8, group);
      zeros[PairOf(output)] = static_cast<std::byte>(zero | other << 4);
    }
  }

  auto* const words = reinterpret_cast<uint32_t*>(at + format.numbers_offset());
  const int32_t words_of_tile = format.tile_bytes() / 4;
  const int32_t bits = format.has_bytes() ? 8 : 4;
  for (int32_t i = thread; i < format.tiles_of_chunk() * words_of_tile; i += kThreads) {
    const int64_t tile_col = first_col + i / words_of_tile * kTileInputs;
    uint32_t word = 0;
    for (int32_t bit = 0; bit < 32; bit += bits) {
      const TileNumber number = NumberAt(format.has_bytes(), i % words_of_tile, bit);
      word |= NumberOf(raw, format, first_row + number.output, tile_col + number.input) << bit;
    }
    words[i] = format.number == DType::kFp4 ? ArrangeFp4(word) : word;
  }
}

}  // namespace

cudaError_t LaunchPack(const RawWeights& raw,
                       const PackedFormat& format,
                       std::byte* to,
                       cudaStream_t stream) {
  const int64_t blocks = format.tiles(raw.rows) * format.chunks(raw.cols);
  PackKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(raw, format, to);
  return cudaGetLastError();
}

}  // namespace baton::cuda
