#include "common/kvcache/layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/check.h"

namespace baton {
namespace {

constexpr size_t kMaxPlaneName = 32;
constexpr int32_t kMaxHeads = 4096;
constexpr int32_t kMaxBlockTokens = 1024;
constexpr int32_t kMaxSlidingWindow = 1 << 28;
// The parts of a state in its blocks begin and end at multiples of this many bytes of the state, so
// that no element and no vector of a kernel is in two of them.
constexpr size_t kStateAlignment = 16;

// The bytes of a block of a layout without KV, and the most blocks that a state takes there: small
// blocks, because each block of tokens takes one, but lists that are not too long.
constexpr size_t kStateBlockBytes = size_t{16} << 10;
constexpr size_t kMaxStateParts = 4096;

// ChooseLayerGroups.
constexpr int32_t kMaxLayerGroups = 4;
constexpr int32_t kLastGroupShare = 8;  // the last layer group has 1/kLastGroupShare of all layers
constexpr size_t kGroupBytes = size_t{64} << 10;

// The largest part of the blocks of a window that DenseLayout leaves empty.
constexpr double kMaxWaste = 0.02;

Status CheckRange(std::string_view field, int64_t value, int64_t lowest, int64_t highest) {
  if (value >= lowest && value <= highest) return OkStatus();
  return InvalidArgument(
      "KV layout: {} is {}; it must be between {} and {}", field, value, lowest, highest);
}

Status CheckPlane(const KvPlane& plane, int32_t max_dim) {
  if (plane.name.empty() || plane.name.size() > kMaxPlaneName) {
    return InvalidArgument("KV layout: a plane's name has {} characters; it must have 1 to {}",
                           plane.name.size(),
                           kMaxPlaneName);
  }
  BATON_RETURN_IF_ERROR(
      CheckRange(fmt::format("heads of plane {}", plane.name), plane.heads, 1, kMaxHeads));
  BATON_RETURN_IF_ERROR(
      CheckRange(fmt::format("dim of plane {}", plane.name), plane.dim, 1, max_dim));
  if (ShapeOf(plane.dtype).elements != 1) {
    return InvalidArgument("KV layout: dtype of plane {} is {}; it must be f32, f16, bf16 or fp8",
                           plane.name,
                           Name(plane.dtype));
  }
  return OkStatus();
}

// "0-3,5,7-9".
std::string Ranges(const std::vector<int32_t>& ascending) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ascending[i]);
    if (end - i > 1) text += fmt::format("-{}", ascending[end - 1]);
    i = end;
  }
  return text;
}

std::string ToString(const KvPlane& plane) {
  return fmt::format("{} {} × {} {}{}{}",
                     plane.name,
                     plane.heads,
                     plane.dim,
                     Name(plane.dtype),
                     plane.order == KvOrder::kDimMajor ? " by dimension" : "",
                     plane.sharded ? "" : " on every rank");
}

std::string ToString(const KvCacheGroup& group) {
  std::vector<std::string> planes;
  std::ranges::transform(group.planes, std::back_inserter(planes), [](const KvPlane& plane) {
    return ToString(plane);
  });
  return fmt::format(
      "{}{}{}{}",
      group.state ? "states of " : "",
      fmt::join(planes, ", "),
      group.sliding_window > 0 ? fmt::format(", sliding window {}", group.sliding_window) : "",
      group.attention_chunk > 0 ? fmt::format(", chunks of {}", group.attention_chunk) : "");
}

// The heads of `plane` that `shard` holds.
int32_t HeadsOf(const KvPlane& plane, const KvShard& shard) {
  return plane.sharded ? shard.head_count : plane.heads;
}

// Of a block of tokens, or of a state.
size_t LayerBytes(const KvLayout& layout, const KvCacheGroup& group, const KvShard& shard) {
  size_t bytes = 0;
  for (const KvPlane& plane : group.planes) {
    bytes += HeadsOf(plane, shard) * plane.head_bytes(layout.plane_tokens(group));
  }
  return bytes;
}

size_t CeilDiv(size_t value, size_t divisor) {
  return (value + divisor - 1) / divisor;
}

// The bytes of the largest block of tokens.
size_t TokenBlockBytes(const KvLayout& layout, const KvShard& shard) {
  size_t largest = 0;
  for (const KvCacheGroup& group : layout.groups) {
    if (!group.state) largest = std::max(largest, GroupBytes(layout, group, shard));
  }
  return largest;
}

// A state continues with the last token alone, so there is one list of its blocks. Windows beside
// it would need more than one cached state.
Status CheckWindows(const KvLayout& layout) {
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    const KvCacheGroup& group = layout.groups[i];
    if (group.state && i + 1 < layout.groups.size()) {
      return InvalidArgument("KV layout: cache group {} of {} has states; only the last one may",
                             i,
                             layout.groups.size());
    }
    if (group.sliding_window > 0 && group.attention_chunk > 0) {
      return InvalidArgument(
          "KV layout: cache group {} has a sliding window of {} tokens and chunks of {}; it may "
          "have one of them",
          i,
          group.sliding_window,
          group.attention_chunk);
    }
    const int32_t window = std::max(group.sliding_window, group.attention_chunk);
    if (layout.has_state() && window > 0) {
      return InvalidArgument(
          "KV layout: cache group {} has a sliding window or chunks of {} tokens; beside states "
          "there must be none",
          i,
          window);
    }
  }
  return OkStatus();
}

std::vector<KvPlane> PlanesOf(const DenseKv& kv) {
  if (kv.latent_width > 0) {
    const KvPlane latent = {
        .name = "latent", .heads = 1, .dim = kv.latent_width, .dtype = kv.dtype, .sharded = false};
    if (kv.index_width == 0) return {latent};
    KvPlane index = latent;
    index.name = "index";
    index.dim = kv.index_width;
    return {latent, index};
  }
  const KvPlane v = {.name = "v", .heads = kv.kv_heads, .dim = kv.head_dim, .dtype = kv.dtype};
  KvPlane k = v;
  k.name = "k";
  if (kv.k_dim_major) k.order = KvOrder::kDimMajor;
  return {k, v};
}

// Layers with all tokens come first, because 0 is the smallest window.
std::map<KvWindow, std::vector<int32_t>> LayersByWindow(const DenseKv& kv) {
  std::map<KvWindow, std::vector<int32_t>> windows;
  for (int32_t layer = 0; layer < kv.layers; ++layer) {
    if (std::ranges::binary_search(kv.state.layers, layer)) continue;
    windows[kv.windows.empty() ? KvWindow() : kv.windows[layer]].push_back(layer);
  }
  return windows;
}

// How many layers a block holds: the most with which no window leaves more than kMaxWaste of its
// blocks empty, or the least part, if that would take too many cache groups. Large blocks have
// short block tables and are transferred faster.
size_t LayersOfBlock(const std::map<KvWindow, std::vector<int32_t>>& windows) {
  size_t longest = 1;
  for (const auto& [window, layers] : windows) longest = std::max(longest, layers.size());
  size_t best = longest;
  double least_waste = 1;
  for (size_t most = longest; most >= 1 && least_waste > kMaxWaste; --most) {
    size_t groups = 0;
    double waste = 0;
    for (const auto& [window, layers] : windows) {
      const size_t parts = CeilDiv(layers.size(), most);
      groups += parts;
      const auto used = static_cast<double>(layers.size()) / static_cast<double>(parts * most);
      waste = std::max(waste, 1 - used);
    }
    if (groups > kMaxCacheGroups) break;
    if (waste < least_waste) best = most;
    least_waste = std::min(waste, least_waste);
  }
  return best;
}

}  // namespace

int32_t KvLayout::layers() const {
  size_t count = 0;
  for (const KvCacheGroup& group : groups) count += group.layers.size();
  return static_cast<int32_t>(count);
}

int32_t KvLayout::sharded_heads() const {
  for (const KvCacheGroup& group : groups) {
    for (const KvPlane& plane : group.planes) {
      if (plane.sharded) return plane.heads;
    }
  }
  return 0;
}

KvWindow KvLayout::window_beside_all() const {
  const std::vector<KvWindow> all = windows();
  return std::ranges::any_of(all, &KvWindow::reads_all) ? std::ranges::max(all) : KvWindow();
}

std::vector<KvWindow> KvLayout::windows() const {
  std::vector<KvWindow> windows;
  for (const KvCacheGroup& group : groups) windows.push_back(group.window());
  return windows;
}

bool KvLayout::has_replicated_planes() const {
  return std::ranges::any_of(groups, [](const KvCacheGroup& group) {
    return std::ranges::any_of(group.planes, [](const KvPlane& plane) { return !plane.sharded; });
  });
}

std::string KvLayout::ToString() const {
  std::string text;
  for (const KvCacheGroup& group : groups) {
    text += groups.size() == 1 ? fmt::format("{} layers", layers())
                               : fmt::format("layers {}", Ranges(group.layers));
    text += fmt::format(" of {}; ", baton::ToString(group));
  }
  return text + fmt::format("{} tokens a block; sent after layers {}",
                            block_tokens,
                            fmt::join(layer_group_ends, ", "));
}

Status KvLayout::Validate() const {
  BATON_RETURN_IF_ERROR(CheckRange("block_tokens", block_tokens, 1, kMaxBlockTokens));
  BATON_RETURN_IF_ERROR(
      CheckRange("the number of cache groups", std::ssize(groups), 1, kMaxCacheGroups));
  BATON_RETURN_IF_ERROR(CheckRange("layers", layers(), 1, kMaxLayers));
  BATON_RETURN_IF_ERROR(CheckWindows(*this));
  std::vector<bool> seen(layers());
  for (const KvCacheGroup& group : groups) {
    BATON_RETURN_IF_ERROR(CheckRange("sliding_window", group.sliding_window, 0, kMaxSlidingWindow));
    BATON_RETURN_IF_ERROR(
        CheckRange("attention_chunk", group.attention_chunk, 0, kMaxSlidingWindow));
    BATON_RETURN_IF_ERROR(
        CheckRange("the number of planes", std::ssize(group.planes), 1, kMaxPlanes));
    for (const KvPlane& plane : group.planes) {
      BATON_RETURN_IF_ERROR(CheckPlane(plane, group.state ? kMaxStateDim : kMaxPlaneDim));
      if (plane.sharded && plane.heads != sharded_heads()) {
        return InvalidArgument(
            "KV layout: plane {} has {} heads, another one {}; all sharded planes must have the "
            "same number",
            plane.name,
            plane.heads,
            sharded_heads());
      }
    }
    if (!std::ranges::is_sorted(group.layers)) {
      return InvalidArgument("KV layout: the layers of a cache group do not ascend");
    }
    for (const int32_t layer : group.layers) {
      BATON_RETURN_IF_ERROR(CheckRange("a layer", layer, 0, layers() - 1));
      if (seen[layer]) return InvalidArgument("KV layout: layer {} occurs twice", layer);
      seen[layer] = true;
    }
  }
  if (layer_group_ends.empty() || layer_group_ends.front() < 1 ||
      layer_group_ends.back() != layers() ||
      std::ranges::adjacent_find(layer_group_ends, std::greater_equal<>()) !=
          layer_group_ends.end()) {
    return InvalidArgument(
        "KV layout: the ends of the layer groups are [{}]; they must ascend to {}",
        fmt::join(layer_group_ends, ", "),
        layers());
  }
  return OkStatus();
}

KvLayout DenseLayout(const DenseKv& kv) {
  const std::vector<KvPlane> planes = PlanesOf(kv);
  KvLayout layout;
  layout.block_tokens = kv.block_tokens;
  const std::map<KvWindow, std::vector<int32_t>> windows = LayersByWindow(kv);
  const size_t most = LayersOfBlock(windows);
  for (const auto& [window, layers] : windows) {
    const size_t parts = CeilDiv(layers.size(), most);
    for (size_t part = 0; part < parts; ++part) {
      KvCacheGroup& group = layout.groups.emplace_back();
      (window.chunked ? group.attention_chunk : group.sliding_window) = window.tokens;
      group.planes = planes;
      // Neighbours are in different cache groups, so that the layers of a pipeline stage fill equal
      // parts of the blocks of all of them.
      for (size_t i = part; i < layers.size(); i += parts) group.layers.push_back(layers[i]);
    }
  }
  // Where all layers have states, blocks of tokens hold nothing, and stand for their tokens alone.
  if (layout.groups.empty()) layout.groups.push_back({.layers = {}, .planes = planes});
  if (!kv.state.layers.empty()) {
    layout.groups.push_back({.layers = kv.state.layers, .planes = kv.state.planes, .state = true});
  }
  layout.layer_group_ends = ChooseLayerGroups(layout);
  return layout;
}

std::vector<int32_t> ChooseLayerGroups(const KvLayout& layout) {
  const int32_t layers = layout.layers();
  if (layers == 0) return {};
  size_t bytes = 0;
  for (const KvCacheGroup& group : layout.groups) {
    if (!group.state) bytes += GroupBytes(layout, group, WholeModel(layout));
  }
  const auto most = static_cast<size_t>(std::min(layers, kMaxLayerGroups));
  const auto groups = static_cast<int32_t>(std::clamp<size_t>(bytes / kGroupBytes, 1, most));
  if (groups == 1) return {layers};
  const size_t layer_bytes = std::max<size_t>(bytes / layers, 1);
  const auto least = static_cast<int32_t>((kGroupBytes + layer_bytes - 1) / layer_bytes);
  const int32_t last = std::max(layers / kLastGroupShare, least);
  std::vector<int32_t> ends;
  for (int32_t group = 1; group < groups; ++group) {
    ends.push_back(static_cast<int32_t>(int64_t{layers - last} * group / (groups - 1)));
  }
  ends.push_back(layers);
  return ends;
}

int32_t LayersBefore(const KvCacheGroup& group, int32_t layer) {
  const auto at = std::ranges::lower_bound(group.layers, layer);
  return static_cast<int32_t>(at - group.layers.begin());
}

size_t GroupBytes(const KvLayout& layout, const KvCacheGroup& group, const KvShard& shard) {
  const int32_t layers = LayersBefore(group, shard.first_layer + shard.layer_count) -
                         LayersBefore(group, shard.first_layer);
  return layers * LayerBytes(layout, group, shard);
}

size_t ShardBlockBytes(const KvLayout& layout, const KvShard& shard) {
  const size_t of_tokens = TokenBlockBytes(layout, shard);
  if (of_tokens > 0 || !layout.has_state()) return of_tokens;
  const KvShard whole = WholeModel(layout);
  const size_t whole_block = TokenBlockBytes(layout, whole);
  const size_t whole_state = ShardStateBytes(layout, whole);
  const size_t parts =
      whole_block > 0
          ? CeilDiv(whole_state, whole_block)
          : std::clamp(CeilDiv(whole_state, kStateBlockBytes), size_t{1}, kMaxStateParts);
  const size_t bytes = CeilDiv(ShardStateBytes(layout, shard), parts);
  return CeilDiv(bytes, kStateAlignment) * kStateAlignment;
}

size_t ShardStateBytes(const KvLayout& layout, const KvShard& shard) {
  return layout.has_state() ? GroupBytes(layout, layout.groups.back(), shard) : 0;
}

size_t StateBlockBytes(const KvLayout& layout, const KvShard& shard) {
  if (!layout.has_state()) return 0;
  return ShardBlockBytes(layout, shard) / kStateAlignment * kStateAlignment;
}

int32_t StateBlocks(const KvLayout& layout, std::span<const KvShard> shards) {
  size_t most = 0;
  for (const KvShard& shard : shards) {
    const size_t bytes = ShardStateBytes(layout, shard);
    const size_t block_bytes = StateBlockBytes(layout, shard);
    // ValidateShard refuses blocks that hold no part of a state.
    if (block_bytes > 0) most = std::max(most, CeilDiv(bytes, block_bytes));
  }
  return static_cast<int32_t>(most);
}

int32_t MaxStateBlocks(const KvLayout& layout) {
  const KvShard whole = WholeModel(layout);
  size_t least = ShardBlockBytes(layout, whole);
  for (const KvCacheGroup& group : layout.groups) {
    if (group.state || group.layers.empty()) continue;
    least = std::min(least, LayerBytes(layout, group, whole));
  }
  // With fewer heads, up to half of a small block is lost to the alignment.
  return static_cast<int32_t>(
      CeilDiv(2 * ShardStateBytes(layout, whole), std::max<size_t>(least, 1)));
}

Status ValidateShard(const KvLayout& layout, const KvShard& shard) {
  const int32_t layers = layout.layers();
  const int32_t heads = layout.sharded_heads();
  const bool layers_fit = shard.first_layer >= 0 && shard.layer_count >= 1 &&
                          shard.layer_count <= layers &&
                          shard.first_layer <= layers - shard.layer_count;
  const bool heads_fit = shard.first_head >= 0 && shard.head_count >= std::min(heads, 1) &&
                         shard.head_count <= heads && shard.first_head <= heads - shard.head_count;
  if (layers_fit && heads_fit) {
    if (ShardStateBytes(layout, shard) == 0 || StateBlockBytes(layout, shard) > 0) {
      return OkStatus();
    }
    return InvalidArgument("blocks of {} bytes hold no part of a state, which has at least {}",
                           ShardBlockBytes(layout, shard),
                           kStateAlignment);
  }
  return InvalidArgument("KV shard of layers {}+{} and heads {}+{} does not fit {}",
                         shard.first_layer,
                         shard.layer_count,
                         shard.first_head,
                         shard.head_count,
                         layout.ToString());
}

std::vector<KvLayerPlace> PlacesOf(const KvLayout& layout, const KvShard& shard) {
  std::vector<KvLayerPlace> places(shard.layer_count);
  for (size_t group = 0; group < layout.groups.size(); ++group) {
    int32_t index = 0;
    for (const int32_t layer : layout.groups[group].layers) {
      const int32_t of_shard = layer - shard.first_layer;
      if (of_shard < 0 || of_shard >= shard.layer_count) continue;
      places[of_shard] = {static_cast<int32_t>(group), index++};
    }
  }
  return places;
}

KvView MakeView(const KvLayout& layout,
                const KvShard& shard,
                std::span<const KvLayerPlace> places,
                std::byte* base,
                int32_t blocks) {
  const auto& planes = layout.groups[0].planes;
  const bool alike = std::ranges::all_of(layout.groups, [&](const KvCacheGroup& group) {
    return group.state || group.planes == planes;
  });
  const bool latent = !planes[0].sharded;
  const bool fits = planes.size() == 2 || (latent && planes.size() == 1);
  BATON_CHECK(alike && fits && std::cmp_equal(places.size(), shard.layer_count),
              "kernels have no view of the layout {}",
              layout.ToString());
  const KvPlane& k = planes[0];
  const auto head = static_cast<int64_t>(k.head_bytes(layout.block_tokens));
  KvView view;
  view.base = base;
  view.dtype = k.dtype;
  view.blocks = blocks;
  view.layers = shard.layer_count;
  view.kv_heads = HeadsOf(k, shard);
  view.head_dim = k.dim;
  view.block_tokens = layout.block_tokens;
  view.k_dim_major = k.order == KvOrder::kDimMajor;
  view.head_stride = head;
  view.value_offset = latent ? 0 : head * view.kv_heads;
  view.layer_stride = static_cast<int64_t>(LayerBytes(layout, layout.groups[0], shard));
  if (latent && planes.size() == 2) {
    view.index_dim = planes[1].dim;
    view.index_offset = head;
  }
  view.block_stride = static_cast<int64_t>(ShardBlockBytes(layout, shard));
  view.groups = layout.block_groups();
  if (layout.groups.size() > 1) view.places = places.data();
  if (layout.has_state()) {
    view.state = {
        .block_bytes = static_cast<int64_t>(StateBlockBytes(layout, shard)),
        .layer_bytes = static_cast<int64_t>(LayerBytes(layout, layout.groups.back(), shard))};
  }
  return view;
}

}  // namespace baton
