#include <cstdint>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/launch.cuh"

namespace baton::cuda {
namespace {

constexpr int kHeads = 8;  // that a thread loads before it stores

struct Arguments {
  const GatheredSequence* list;
  const int32_t* tables;
  const std::byte* keys;  // of the layer
  int64_t part_stride;    // in bytes, as the other strides
  int64_t block_stride;
  int64_t head_stride;
  int block_tokens;
  int kv_heads;
  int row_bytes;  // of one head of one token
  int tokens;     // of the copy
  std::byte* to;
};

// Grid [block of a sequence][sequence][K | V]; a thread block moves all heads of an arena block.
__global__ void GatherBlocks(const __grid_constant__ Arguments a) {
  const GatheredSequence sequence = a.list[blockIdx.y];
  WaitForPredecessor();
  const int first = static_cast<int>(blockIdx.x) * a.block_tokens;
  const int padded = (sequence.tokens + kGatherAlignment - 1) / kGatherAlignment * kGatherAlignment;
  if (first >= padded) return;
  const int chunks = a.row_bytes / 16;  // in a row
  const int rows = min(a.block_tokens, padded - first);
  const bool cached = first < sequence.tokens;
  const int block = cached ? a.tables[sequence.table_start + blockIdx.x] : 0;
  const std::byte* from = a.keys + block * a.block_stride + blockIdx.z * a.part_stride;
  const int64_t token =
      int64_t{blockIdx.z} * a.kv_heads * a.tokens + sequence.to + first;  // of the first head
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += blockDim.x) {
    const bool known = first + i / chunks < sequence.tokens;
    for (int head = 0; head < a.kv_heads; head += kHeads) {
      uint4 values[kHeads];
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        values[k] = make_uint4(0, 0, 0, 0);
        if (known && head + k < a.kv_heads) {
          values[k] = reinterpret_cast<const uint4*>(from + (head + k) * a.head_stride)[i];
        }
      }
#pragma unroll
      for (int k = 0; k < kHeads; ++k) {
        if (head + k >= a.kv_heads) break;
        const int64_t to = token + int64_t{head + k} * a.tokens;
        reinterpret_cast<uint4*>(a.to + to * a.row_bytes)[i] = values[k];
      }
    }
  }
}

}  // namespace

cudaError_t LaunchGather(const GatherWork& work, const AttentionCall& call) {
  const KvView& kv = call.kv;
  Arguments a = {};
  a.list = work.list;
  a.tables = work.tables;
  a.keys = kv.base + call.layer * kv.layer_stride;
  a.part_stride = kv.part_stride;
  a.block_stride = kv.block_stride;
  a.head_stride = kv.head_stride;
  a.block_tokens = kv.block_tokens;
  a.kv_heads = kv.kv_heads;
  a.row_bytes = kv.head_dim * 2;
  a.tokens = work.tokens;
  a.to = work.to;
  const dim3 grid(work.max_blocks, work.sequences, 2);
  GatherBlocks<<<grid, 256, 0, call.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace baton::cuda
