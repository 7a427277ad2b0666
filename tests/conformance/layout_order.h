#pragma once

#include <algorithm>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {

// One head of one plane in one layer of a block, or of a state.
struct HeadInBlock {
  int32_t layer = 0;  // of the model
  size_t plane = 0;   // of the cache group
  int32_t head = 0;   // of the model
  size_t offset = 0;  // in the block or state
  size_t bytes = 0;
};

// The content of a block of `shard`, or of its state, in cache group `group`, in the order that
// layout.h documents.
inline std::vector<HeadInBlock> HeadsInBlock(const KvLayout& layout,
                                             size_t group,
                                             const KvShard& shard) {
  std::vector<HeadInBlock> heads;
  size_t offset = 0;
  for (int32_t layer = shard.first_layer; layer < shard.first_layer + shard.layer_count; ++layer) {
    if (std::ranges::count(layout.groups[group].layers, layer) == 0) continue;
    for (size_t p = 0; p < layout.groups[group].planes.size(); ++p) {
      const KvPlane& plane = layout.groups[group].planes[p];
      const int32_t first = plane.sharded ? shard.first_head : 0;
      const int32_t count = plane.sharded ? shard.head_count : plane.heads;
      const size_t tokens = layout.groups[group].state ? 1 : layout.block_tokens;
      const size_t bytes = tokens * plane.dim * ShapeOf(plane.dtype).bytes;
      for (int32_t head = first; head < first + count; ++head) {
        heads.push_back({layer, p, head, offset, bytes});
        offset += bytes;
      }
    }
  }
  return heads;
}

// Layouts beside DenseLayout. `layers` is at least 4.

// MLA (DeepSeek-V2, arXiv:2405.04434): one latent for all heads, on every tensor-parallel rank.
inline KvLayout LatentLayout(int32_t layers, int32_t dim) {
  KvLayout layout = DenseLayout({.layers = layers, .kv_heads = 1, .head_dim = dim});
  KvPlane latent = layout.groups[0].planes[0];
  latent.name = "latent";
  latent.dtype = DType::kBF16;
  latent.sharded = false;
  layout.groups[0].planes = {latent};
  layout.layer_group_ends = {layers - 1, layers};
  return layout;
}

// FP8 with a scale for each token and head, inside the block.
inline KvLayout ScaledFp8Layout(int32_t layers, int32_t heads, int32_t dim) {
  KvLayout layout =
      DenseLayout({.layers = layers, .kv_heads = heads, .head_dim = dim, .dtype = DType::kFp8});
  std::vector<KvPlane>& planes = layout.groups[0].planes;
  for (const size_t plane : {0, 1}) {
    KvPlane scale = planes[plane];
    scale.name += "_scale";
    scale.dim = 1;
    scale.dtype = DType::kF32;
    planes.push_back(scale);
  }
  layout.layer_group_ends = {layers - 1, layers};
  return layout;
}

// Every other layer has a sliding window and, so that blocks differ in size, a third plane of one
// head for all ranks.
inline KvLayout MixedLayout(int32_t layers, int32_t heads, int32_t dim) {
  KvLayout layout =
      DenseLayout({.layers = layers, .kv_heads = heads, .head_dim = dim, .dtype = DType::kF16});
  KvCacheGroup& full = layout.groups[0];
  KvCacheGroup windowed = full;
  std::erase_if(full.layers, [](int32_t layer) { return layer % 2 == 0; });
  std::erase_if(windowed.layers, [](int32_t layer) { return layer % 2 == 1; });
  windowed.sliding_window = 4 * layout.block_tokens;
  KvPlane shared = windowed.planes[0];
  shared.name = "shared";
  shared.heads = 1;
  shared.sharded = false;
  windowed.planes.push_back(shared);
  layout.groups.push_back(windowed);
  layout.layer_group_ends = {1, layers - 1, layers};
  return layout;
}

// Every fourth layer has KV. The others have states, whose planes and heads are no multiples of a
// block, with a plane of one head for all ranks.
inline KvLayout HybridLayout(int32_t layers, int32_t heads, int32_t dim, int32_t block_tokens) {
  DenseKv kv = {.layers = layers,
                .kv_heads = heads,
                .head_dim = dim,
                .block_tokens = block_tokens,
                .dtype = DType::kF16};
  for (int32_t layer = 0; layer < layers; ++layer) {
    if (layer % 4 != 3) kv.state.layers.push_back(layer);
  }
  kv.state.planes = {
      {.name = "conv", .heads = heads, .dim = 3 * dim, .dtype = DType::kF16},
      {.name = "memory", .heads = heads, .dim = dim * dim + 1, .dtype = DType::kF32},
      {.name = "shared", .heads = 1, .dim = dim * dim, .dtype = DType::kF16, .sharded = false}};
  KvLayout layout = DenseLayout(kv);
  layout.layer_group_ends = {1, layers - 1, layers};
  return layout;
}

}  // namespace baton
