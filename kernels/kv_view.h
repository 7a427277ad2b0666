#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace baton {

// Paged KV memory as kernels see it: a plane of K and a plane of V of the same shape. The address
// of K of one head in one layer of one block is base + block·block_stride + layer·layer_stride +
// head·head_stride; V of that head lies value_offset after it. Inside the head, V is [token][dim];
// K is [token][dim], or [dim][token] when `k_dim_major` (the CPU backend's choice: 16 tokens are
// then one vector). Strides and offsets are in bytes. Does not own the memory.
struct KvView {
  std::byte* base = nullptr;
  DType dtype = DType::kF32;  // kF32, kF16, kBF16 or kFp8
  int32_t blocks = 0;
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  bool k_dim_major = false;
  int64_t block_stride = 0;
  int64_t layer_stride = 0;
  int64_t head_stride = 0;
  int64_t value_offset = 0;

  std::byte* Key(int32_t block, int32_t layer, int32_t head) const {
    return base + block * block_stride + layer * layer_stride + head * head_stride;
  }
  std::byte* Value(int32_t block, int32_t layer, int32_t head) const {
    return Key(block, layer, head) + value_offset;
  }

  bool operator==(const KvView&) const = default;
};

}  // namespace baton
