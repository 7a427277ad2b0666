#include "common/kvcache/layout.h"

#include <algorithm>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr int32_t kMaxLayerGroups = 4;
constexpr int32_t kLastGroupShare = 8;  // the last group has 1/kLastGroupShare of all layers
constexpr size_t kGroupBytes = size_t{64} << 10;

Status CheckRange(std::string_view field, int32_t value, int32_t highest) {
  if (value >= 1 && value <= highest) return OkStatus();
  return InvalidArgument("KV layout: {} is {}; it must be between 1 and {}", field, value, highest);
}

}  // namespace

std::string KvLayout::ToString() const {
  return fmt::format("{} layers × {} kv heads × {}, {}, {} tokens a block{}",
                     layers,
                     kv_heads,
                     head_dim,
                     Name(dtype),
                     block_tokens,
                     k_dim_major ? ", K by dimension" : "");
}

Status KvLayout::Validate() const {
  BATON_RETURN_IF_ERROR(CheckRange("layers", layers, 4096));
  BATON_RETURN_IF_ERROR(CheckRange("kv_heads", kv_heads, 4096));
  BATON_RETURN_IF_ERROR(CheckRange("head_dim", head_dim, 4096));
  BATON_RETURN_IF_ERROR(CheckRange("block_tokens", block_tokens, 1024));
  if (ShapeOf(dtype).elements != 1) {
    return InvalidArgument("KV layout: dtype is {}; it must be f32, f16, bf16 or fp8", Name(dtype));
  }
  return OkStatus();
}

int32_t LayerGroups(const KvLayout& layout) {
  const size_t pieces = ShardBlockBytes(layout, WholeModel(layout)) / kGroupBytes;
  const auto most = static_cast<size_t>(std::min(layout.layers, kMaxLayerGroups));
  return static_cast<int32_t>(std::clamp<size_t>(pieces, 1, most));
}

int32_t LayerGroupEnd(const KvLayout& layout, int32_t group) {
  const int32_t groups = LayerGroups(layout);
  if (groups == 1 || group >= groups - 1) return layout.layers;
  const size_t layer_bytes = ShardBlockBytes(layout, WholeModel(layout)) / layout.layers;
  const auto least = static_cast<int32_t>((kGroupBytes + layer_bytes - 1) / layer_bytes);
  const int32_t last = std::max(layout.layers / kLastGroupShare, least);
  return static_cast<int32_t>(int64_t{layout.layers - last} * (group + 1) / (groups - 1));
}

Status ValidateShard(const KvLayout& layout, const KvShard& shard) {
  const bool layers_fit = shard.first_layer >= 0 && shard.layer_count >= 1 &&
                          shard.layer_count <= layout.layers &&
                          shard.first_layer <= layout.layers - shard.layer_count;
  const bool heads_fit = shard.first_head >= 0 && shard.head_count >= 1 &&
                         shard.head_count <= layout.kv_heads &&
                         shard.first_head <= layout.kv_heads - shard.head_count;
  if (layers_fit && heads_fit) return OkStatus();
  return InvalidArgument("KV shard of layers {}+{} and heads {}+{} does not fit {}",
                         shard.first_layer,
                         shard.layer_count,
                         shard.first_head,
                         shard.head_count,
                         layout.ToString());
}

KvView MakeView(const KvLayout& layout, const KvShard& shard, std::byte* base, int32_t blocks) {
  const auto head = static_cast<int64_t>(layout.head_bytes());
  KvView view;
  view.base = base;
  view.dtype = layout.dtype;
  view.blocks = blocks;
  view.layers = shard.layer_count;
  view.kv_heads = shard.head_count;
  view.head_dim = layout.head_dim;
  view.block_tokens = layout.block_tokens;
  view.k_dim_major = layout.k_dim_major;
  view.head_stride = head;
  view.part_stride = head * shard.head_count;
  view.layer_stride = 2 * view.part_stride;
  view.block_stride = shard.layer_count * view.layer_stride;
  return view;
}

}  // namespace baton
