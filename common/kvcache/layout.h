#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "kernels/kv_view.h"

namespace baton {

// How the KV of a whole model lies in memory, block-major [block][layer][K|V][kv_head][token][dim]
// (K [dim][token] when k_dim_major). Counts are of the whole model: a rank's part is a KvShard.
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

// Layers in order, cut into groups: a prompt's KV goes to another worker group by group, so that
// the first layers travel while later ones are computed. As many groups (at most 4) as leave each
// about 64 KiB of a block, since small pieces move slowly; at least one. The last one, for which
// the hand-off waits, is the smallest.
int32_t LayerGroups(const KvLayout& layout);
// The first layer behind group `group`, counted from 0.
int32_t LayerGroupEnd(const KvLayout& layout, int32_t group);

// InvalidArgument when `shard` is empty or reaches outside `layout`.
Status ValidateShard(const KvLayout& layout, const KvShard& shard);

// `blocks` blocks of one shard at `base`, for kernels.
KvView MakeView(const KvLayout& layout, const KvShard& shard, std::byte* base, int32_t blocks);

}  // namespace baton
