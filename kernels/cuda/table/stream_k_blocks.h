#pragma once

#include <cstdint>

// How stream-K attention divides KV heads among thread blocks.
namespace baton::cuda {

// KV heads of a thread block.
constexpr int32_t StreamKHeadsOfBlock(int32_t kv_heads) {
  for (const int32_t heads : {8, 4, 2}) {
    if (kv_heads % heads == 0) return heads;
  }
  return 1;
}

// Thread blocks on an SM: enough for at least four consumer warps with KV in bf16, and for eight
// with KV in fp8, because the memory delivers twice as many numbers, and each must be converted.
constexpr int32_t StreamKBlocksOfSm(int32_t heads_of_block, bool fp8) {
  const int32_t warps = fp8 ? 8 : 4;
  return heads_of_block < warps ? warps / heads_of_block : 1;
}

}  // namespace baton::cuda
