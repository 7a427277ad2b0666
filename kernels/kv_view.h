#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace baton {

// What a backend needs of the KV cache.
struct KvNeeds {
  bool k_dim_major = false;          // KvView::k_dim_major
  int32_t block_token_multiple = 1;  // the tokens of a block are a multiple of this
  bool cache_groups = false;         // layers may have block tables of their own (KvView::places)
  bool states = false;               // layers may have states (KvView::state)
};

// Where the KV of a layer is: a block of the table of cache group `group` holds it as number
// `index` of the group's layers of this rank.
struct KvLayerPlace {
  int32_t group = 0;
  int32_t index = 0;
};

// The states that layers keep in place of KV (KvCacheGroup::state). A state is one string of bytes,
// [layer][plane][head] without gaps, in the arena blocks that StepInput::block_tables lists for its
// sequence: byte i is in block i / block_bytes of the list, at byte i % block_bytes of that block.
// The layer with KvLayerPlace::index `index` begins at byte index · layer_bytes.
struct StateView {
  int64_t block_bytes = 0;  // 0: no layer has a state
  int64_t layer_bytes = 0;

  bool operator==(const StateView&) const = default;
};

// Paged KV memory as kernels see it: a plane of K and a plane of V of the same shape. The address
// of K of one head in one layer of one block is base + block·block_stride + index·layer_stride +
// head·head_stride, where `index` is that of the layer's place; V of that head lies value_offset
// after it. Inside the head, V is [token][dim]; K is [token][dim], or [dim][token] when
// `k_dim_major` (the CPU backend's choice: 16 tokens are then one vector). With one plane for both
// (latents), value_offset is 0 and the plane is [token][dim]. Strides and offsets are in bytes.
// Does not own the memory.
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
  // Beside latents there may be a plane of index keys (IndexShape), [token][dim], index_offset
  // bytes after the latents of the same layer and block. 0: none.
  int32_t index_dim = 0;
  int64_t index_offset = 0;
  int32_t groups = 1;                    // cache groups of blocks of tokens
  const KvLayerPlace* places = nullptr;  // by layer; null: one group with all layers in order
  StateView state = {};

  bool one_plane() const { return value_offset == 0; }
  KvLayerPlace PlaceOf(int32_t layer) const {
    return places == nullptr ? KvLayerPlace{0, layer} : places[layer];
  }
  std::byte* Key(int32_t block, int32_t layer, int32_t head) const {
    return base + block * block_stride + PlaceOf(layer).index * layer_stride + head * head_stride;
  }
  std::byte* Value(int32_t block, int32_t layer, int32_t head) const {
    return Key(block, layer, head) + value_offset;
  }

  std::byte* IndexKey(int32_t block, int32_t layer) const {
    return Key(block, layer, 0) + index_offset;
  }

  bool operator==(const KvView&) const = default;
};

}  // namespace baton
