#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"

namespace baton::cuda {
namespace {

constexpr int kHeads = 8;  // heads that a thread loads before it stores

struct Arguments {
  const GatheredSequence* list;
  const int32_t* tables;
  const std::byte* keys;  // of the layer
  int64_t value_offset;   // in bytes, like the other strides
  int64_t block_stride;
  int64_t head_stride;
  int block_tokens;
  int kv_heads;
  int head_dim;
  const float* kv_scales;  // RopeArgs::kv_scales
  int tokens;              // in the copy
  std::byte* to;
};

// 16 bytes of bf16, or as many numbers in fp8.
template <class Kv>
using KvVector = std::conditional_t<kIsFp8<Kv>, uint2, uint4>;

__device__ __forceinline__ uint4 ToBf16(const uint4& values, float) {
  return values;
}
__device__ __forceinline__ uint4 ToBf16(const uint2& values, float scale) {
  float numbers[8];
  UnpackFp8(values.x, numbers);
  UnpackFp8(values.y, numbers + 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) numbers[i] *= scale;
  const Packed8 packed = Pack(numbers);
  return *reinterpret_cast<const uint4*>(&packed);
}

// Grid [block of a sequence][sequence][K | V]. A thread block copies all heads of an arena block.
template <class Kv>
__global__ void GatherBlocks(const __grid_constant__ Arguments a) {
  const GatheredSequence sequence = a.list[blockIdx.y];
  WaitForPredecessor();
  const int first = static_cast<int>(blockIdx.x) * a.block_tokens;
  const int padded = RoundUp(sequence.tokens, kGatherAlignment);
  if (first >= padded) return;
  const int chunks = a.head_dim / 8;  // vectors in a row
  const int rows = min(a.block_tokens, padded - first);
  const bool cached = first < sequence.tokens;
  const int block = cached ? a.tables[sequence.table_start + blockIdx.x] : 0;
  const std::byte* from = a.keys + block * a.block_stride + blockIdx.z * a.value_offset;
  const int64_t token =
      int64_t{blockIdx.z} * a.kv_heads * a.tokens + sequence.to + first;  // for the first head
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += blockDim.x) {
    const bool known = first + i / chunks < sequence.tokens;
    for (int head = 0; head < a.kv_heads; head += kHeads) {
      KvVector<Kv> values[kHeads];
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        values[k] = {};
        if (known && head + k < a.kv_heads) {
          values[k] = reinterpret_cast<const KvVector<Kv>*>(from + (head + k) * a.head_stride)[i];
        }
      }
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        if (head + k >= a.kv_heads) break;
        const int64_t to = token + int64_t{head + k} * a.tokens;
        const float scale =
            a.kv_scales == nullptr ? 1.0f : a.kv_scales[blockIdx.z * a.kv_heads + head + k];
        reinterpret_cast<uint4*>(a.to + to * a.head_dim * 2)[i] = ToBf16(values[k], scale);
      }
    }
  }
}

}  // namespace

cudaError_t LaunchGather(const GatherWork& work, const AttentionLaunch& call) {
  const KvView& kv = call.kv;
  Arguments a = {};
  a.list = work.list;
  a.tables = work.tables;
  a.keys = kv.base + call.layer * kv.layer_stride;
  a.value_offset = kv.value_offset;
  a.block_stride = kv.block_stride;
  a.head_stride = kv.head_stride;
  a.block_tokens = kv.block_tokens;
  a.kv_heads = kv.kv_heads;
  a.head_dim = kv.head_dim;
  a.kv_scales = call.kv_scales;
  a.tokens = work.tokens;
  a.to = work.to;
  const dim3 grid(work.max_blocks, work.sequences, 2);
  const auto kernel =
      kv.dtype == DType::kFp8 ? GatherBlocks<__nv_fp8_e4m3> : GatherBlocks<__nv_bfloat16>;
  kernel<<<grid, 256, 0, call.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace baton::cuda
