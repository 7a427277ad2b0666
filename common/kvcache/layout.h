#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "kernels/kv_view.h"

namespace baton {

// How the KV of a whole model is stored: block-major [block][layer][K|V][kv_head][token][dim], with
// K as [dim][token] when k_dim_major. All counts are of the whole model; KvShard describes the part
// of one rank.
struct KvLayout {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;
  DType dtype = DType::kF32;
  bool k_dim_major = false;

  bool operator==(const KvLayout&) const = default;

  // Bytes of K (or of V) of one head in one layer of one block.
  size_t head_bytes() const {
    return static_cast<size_t>(block_tokens) * head_dim * ShapeOf(dtype).bytes;
  }
  // "30 layers × 3 kv heads × 64, f16, 16 tokens a block".
  std::string ToString() const;
  // InvalidArgument naming the field that is zero, negative or over its bound.
  Status Validate() const;
};

// The slice of every block that one rank holds.
struct KvShard {
  int32_t first_layer = 0;
  int32_t layer_count = 0;
  int32_t first_head = 0;
  int32_t head_count = 0;

  bool operator==(const KvShard&) const = default;
};

inline KvShard WholeModel(const KvLayout& layout) {
  return {0, layout.layers, 0, layout.kv_heads};
}

// Bytes of `shard`'s part of one block: layer_count · 2 · head_count · head_bytes.
inline size_t ShardBlockBytes(const KvLayout& layout, const KvShard& shard) {
  return static_cast<size_t>(shard.layer_count) * 2 * shard.head_count * layout.head_bytes();
}

// The number of layer groups. A prompt's KV is sent to another worker group by group, so that the
// KV of the first layers is transferred while later layers are computed. There are 1 to 4 groups:
// as many as leave each group about 64 KiB of a block, because small pieces transfer slowly. The
// last group is the smallest, because the hand-off waits for its transfer.
int32_t LayerGroups(const KvLayout& layout);
// The first layer after group `group`; groups count from 0.
int32_t LayerGroupEnd(const KvLayout& layout, int32_t group);

// InvalidArgument when `shard` is empty or reaches outside `layout`.
Status ValidateShard(const KvLayout& layout, const KvShard& shard);

// The view that kernels take of `blocks` blocks of one shard, stored at `base`.
KvView MakeView(const KvLayout& layout, const KvShard& shard, std::byte* base, int32_t blocks);

}  // namespace baton
