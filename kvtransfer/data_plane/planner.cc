#include "kvtransfer/data_plane/planner.h"

#include <algorithm>
#include <span>

#include "common/base/check.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

// Indices first, first + 1, …, first + count - 1; empty if count is not positive.
struct Range {
  int32_t first = 0;
  int32_t count = 0;
  bool operator==(const Range&) const = default;
};

Range Intersect(const Range& a, const Range& b) {
  const int32_t first = std::max(a.first, b.first);
  return {first, std::min(a.first + a.count, b.first + b.count) - first};
}

Range Layers(const KvShard& shard) {
  return {shard.first_layer, shard.layer_count};
}
Range Heads(const KvShard& shard) {
  return {shard.first_head, shard.head_count};
}
Range Layers(const KvPart& part) {
  return {part.first_layer, part.layer_count};
}
Range Heads(const KvPart& part) {
  return {part.first_head, part.head_count};
}

// Layers × heads of sharded planes, or layers × the one range of replicated planes.
struct Area {
  Range layers;
  Range heads;
  bool empty() const { return layers.count <= 0 || heads.count <= 0; }
  int64_t size() const { return int64_t{layers.count} * heads.count; }
};

// Whether `part` of sender shard `source` is not covered yet by the disjoint areas `taken` of one
// receiver shard. InvalidArgument if it overlaps one of them in part.
StatusOr<bool> IsNew(const Area& part, std::span<const Area> taken, uint32_t source) {
  for (const Area& other : taken) {
    const Area common = {Intersect(part.layers, other.layers), Intersect(part.heads, other.heads)};
    if (common.empty()) continue;
    if (common.layers == part.layers && common.heads == part.heads) return false;
    return InvalidArgument(
        "sender shard {} and another one overlap in part (layers {}+{}, heads {}+{}); they must be "
        "equal or disjoint",
        source,
        common.layers.first,
        common.layers.count,
        common.heads.first,
        common.heads.count);
  }
  return true;
}

// Finds the parts of one receiver shard, and counts how much of it they fill.
class Filling {
 public:
  Filling(const KvLayout& layout, const KvShard& destination)
      : sharded_(layout.sharded_heads() > 0),
        replicated_(layout.has_replicated_planes()),
        destination_(destination) {}

  // The part that `source` contributes, or a part without layers.
  StatusOr<KvPart> Add(const KvShard& shard, uint32_t source) {
    const Range layers = Intersect(Layers(shard), Layers(destination_));
    KvPart part = {.first_layer = layers.first, .layer_count = layers.count};
    const Area heads = {layers, Intersect(Heads(shard), Heads(destination_))};
    if (sharded_ && !heads.empty()) {
      BATON_ASSIGN_OR_RETURN(const bool is_new, IsNew(heads, heads_, source));
      if (is_new) {
        heads_.push_back(heads);
        part.first_head = heads.heads.first;
        part.head_count = heads.heads.count;
      }
    }
    const Area copies = {layers, {0, 1}};
    if (replicated_ && !copies.empty()) {
      BATON_ASSIGN_OR_RETURN(part.replicated, IsNew(copies, copies_, source));
      if (part.replicated) copies_.push_back(copies);
    }
    if (part.head_count == 0 && !part.replicated) part.layer_count = 0;
    return part;
  }

  bool complete() const {
    int64_t heads = 0;
    for (const Area& area : heads_) heads += area.size();
    int64_t copies = 0;
    for (const Area& area : copies_) copies += area.size();
    const Area whole = {Layers(destination_), Heads(destination_)};
    return (!sharded_ || heads == whole.size()) &&
           (!replicated_ || copies == destination_.layer_count);
  }

 private:
  const bool sharded_;
  const bool replicated_;
  const KvShard& destination_;
  std::vector<Area> heads_;
  std::vector<Area> copies_;  // of replicated planes
};

// The heads of `plane` in `part`.
Range HeadsIn(const KvPlane& plane, const KvPart& part) {
  if (plane.sharded) return Heads(part);
  return {0, part.replicated ? plane.heads : 0};
}

// Appends the links that carry the state of `link`, which has one layer group.
void AppendState(const KvLayout& layout, const KvLink& link, std::vector<KvLink>& links) {
  const std::vector<int32_t>& layers = layout.groups[link.cache_group].layers;
  const int32_t first = LayersBefore(layout.groups[link.cache_group], link.part.first_layer);
  const int32_t end =
      LayersBefore(layout.groups[link.cache_group], link.part.first_layer + link.part.layer_count);
  if (first == end) return;
  KvLink one_layer = link;
  one_layer.part.first_layer = layers[first];
  one_layer.part.layer_count = 1;
  const size_t layer_bytes = LinkBlockBytes(layout, one_layer);
  if (layer_bytes == 0) return;
  KvLink one_head = one_layer;
  one_head.part.head_count = 1;
  one_head.part.replicated = false;
  const size_t head_bytes = LinkBlockBytes(layout, one_head);
  const auto layers_at_once =
      static_cast<int32_t>(std::clamp<size_t>(kMaxStateLinkBytes / layer_bytes, 1, layers.size()));
  int32_t heads_at_once = link.part.head_count;
  if (layer_bytes > kMaxStateLinkBytes && head_bytes > 0) {
    heads_at_once = static_cast<int32_t>(std::clamp<size_t>(
        kMaxStateLinkBytes / head_bytes, 1, static_cast<size_t>(std::max(1, heads_at_once))));
  }
  for (int32_t slot = first; slot < end; slot += layers_at_once) {
    KvLink part = link;
    part.part.first_layer = layers[slot];
    part.part.layer_count =
        layers[std::min(slot + layers_at_once, end) - 1] + 1 - part.part.first_layer;
    int32_t head = 0;
    do {  // once if there are replicated planes alone
      part.part.first_head = link.part.first_head + head;
      part.part.head_count = std::min(heads_at_once, link.part.head_count - head);
      part.part.replicated = link.part.replicated && head == 0;
      links.push_back(part);
      head += heads_at_once;
    } while (head < link.part.head_count);
  }
}

// Splits `link` at the borders of layer groups and by cache groups.
void AppendSplit(const KvLayout& layout, const KvLink& link, std::vector<KvLink>& links) {
  int32_t first = 0;
  for (uint32_t group = 0; group < layout.layer_group_ends.size(); ++group) {
    const int32_t end = layout.layer_group_ends[group];
    KvLink split = link;
    split.layer_group = group;
    const Range layers = Intersect(Layers(link.part), {first, end - first});
    first = end;
    if (layers.count <= 0) continue;
    split.part.first_layer = layers.first;
    split.part.layer_count = layers.count;
    for (uint32_t cache_group = 0; cache_group < layout.groups.size(); ++cache_group) {
      split.cache_group = cache_group;
      if (layout.groups[cache_group].state) {
        AppendState(layout, split, links);
      } else if (LinkBlockBytes(layout, split) > 0) {
        links.push_back(split);
      }
    }
  }
}

void Append(std::vector<WriteRun>& runs, const WriteRun& run) {
  if (!runs.empty()) {
    WriteRun& last = runs.back();
    if (last.source + last.bytes == run.source &&
        last.destination + last.bytes == run.destination) {
      last.bytes += run.bytes;
      return;
    }
  }
  runs.push_back(run);
}

// Appends the runs of one block, which begins at these bytes of the two arenas. Its loop takes two
// thirds of the time when it has all registers for itself.
[[gnu::noinline]] void AppendBlock(std::vector<WriteRun>& runs,
                                   std::span<const WriteRun> in_block,
                                   uint64_t source,
                                   uint64_t destination) {
  const auto at = [&](const WriteRun& run) {
    return WriteRun{source + run.source, destination + run.destination, run.bytes};
  };
  // Only a block's first run can continue the run before it: `in_block` is merged already.
  Append(runs, at(in_block.front()));
  for (const WriteRun& run : in_block.subspan(1)) runs.push_back(at(run));
}

// Where the layers and planes of one cache group lie in a block, or in a state, of one shard.
struct BlockMap {
  BlockMap(const KvLayout& layout, const KvCacheGroup& group, const KvShard& shard)
      : first_head(shard.first_head), layers_before(LayersBefore(group, shard.first_layer)) {
    for (const KvPlane& plane : group.planes) {
      planes.push_back(layer_bytes);
      const int32_t heads = plane.sharded ? shard.head_count : plane.heads;
      layer_bytes += heads * plane.head_bytes(layout.plane_tokens(group));
    }
  }
  // Head `head` of the model in plane `plane` of the group's layer `slot`.
  uint64_t Offset(
      const KvCacheGroup& group, int32_t tokens, int32_t slot, size_t plane, int32_t head) const {
    const int32_t row = head - (group.planes[plane].sharded ? first_head : 0);
    return (slot - layers_before) * layer_bytes + planes[plane] +
           row * group.planes[plane].head_bytes(tokens);
  }

  const int32_t first_head;
  const int32_t layers_before;
  uint64_t layer_bytes = 0;
  std::vector<uint64_t> planes;  // offsets in a layer
};

// The runs of one block, or of one state, with offsets from its beginning on each side.
std::vector<WriteRun> RunsInBlock(const KvLayout& layout,
                                  const KvShard& source,
                                  const KvShard& destination,
                                  const KvLink& link) {
  const KvCacheGroup& group = layout.groups[link.cache_group];
  const BlockMap from(layout, group, source);
  const BlockMap to(layout, group, destination);
  const KvPart& part = link.part;
  const int32_t tokens = layout.plane_tokens(group);
  std::vector<WriteRun> runs;
  const int32_t end = LayersBefore(group, part.first_layer + part.layer_count);
  for (int32_t slot = LayersBefore(group, part.first_layer); slot < end; ++slot) {
    for (size_t plane = 0; plane < group.planes.size(); ++plane) {
      const Range heads = HeadsIn(group.planes[plane], part);
      if (heads.count <= 0) continue;
      Append(runs,
             {from.Offset(group, tokens, slot, plane, heads.first),
              to.Offset(group, tokens, slot, plane, heads.first),
              heads.count * group.planes[plane].head_bytes(tokens)});
    }
  }
  return runs;
}

// A state on one side: byte i is in block i / block_bytes of its list.
struct StatePlace {
  uint64_t block_bytes = 0;
  uint64_t stride = 0;  // from one block of the arena to the next

  StatePlace(const KvLayout& layout, const KvShard& shard)
      : block_bytes(StateBlockBytes(layout, shard)), stride(ShardBlockBytes(layout, shard)) {}
  size_t BlockOf(uint64_t byte) const { return byte / block_bytes; }
  uint64_t LeftInBlock(uint64_t byte) const { return block_bytes - byte % block_bytes; }
  uint64_t InArena(BlockId block, uint64_t byte) const {
    return block.arena_index() * stride + byte % block_bytes;
  }
};

// `runs` (RunsInBlock) of a state in `blocks`, with offsets into the arenas.
std::vector<WriteRun> RunsInArenas(std::span<const WriteRun> runs,
                                   const StatePlace& from,
                                   const StatePlace& to,
                                   std::span<const BlockPair> blocks) {
  std::vector<WriteRun> split;
  for (WriteRun left : runs) {
    while (left.bytes > 0) {
      const size_t source = from.BlockOf(left.source);
      const size_t destination = to.BlockOf(left.destination);
      BATON_CHECK(std::max(source, destination) < blocks.size(),
                  "block {} of a state of {} blocks",
                  std::max(source, destination),
                  blocks.size());
      const uint64_t bytes =
          std::min({left.bytes, from.LeftInBlock(left.source), to.LeftInBlock(left.destination)});
      Append(split,
             {from.InArena(blocks[source].source, left.source),
              to.InArena(blocks[destination].destination, left.destination),
              bytes});
      left = {left.source + bytes, left.destination + bytes, left.bytes - bytes};
    }
  }
  return split;
}

}  // namespace

StatusOr<std::vector<KvLink>> PlanLinks(const KvLayout& layout,
                                        std::span<const KvShard> sources,
                                        std::span<const KvShard> destinations) {
  std::vector<KvLink> links;
  for (uint32_t d = 0; d < destinations.size(); ++d) {
    Filling filling(layout, destinations[d]);
    for (uint32_t i = 0; i < sources.size(); ++i) {
      // Each receiver shard starts at a different sender shard, so that its links to copies of the
      // same heads are spread over all ranks that hold them.
      const auto s = static_cast<uint32_t>((i + d) % sources.size());
      BATON_ASSIGN_OR_RETURN(const KvPart part, filling.Add(sources[s], s));
      if (part.layer_count <= 0) continue;
      AppendSplit(layout, {.source = s, .destination = d, .part = part}, links);
    }
    if (!filling.complete()) {
      return InvalidArgument(
          "receiver shard {} (layers {}+{}, heads {}+{}) is not covered by the sender's {} shards",
          d,
          destinations[d].first_layer,
          destinations[d].layer_count,
          destinations[d].first_head,
          destinations[d].head_count,
          sources.size());
    }
  }
  return links;
}

size_t LinkBlockBytes(const KvLayout& layout, const KvLink& link) {
  const KvCacheGroup& group = layout.groups[link.cache_group];
  const KvPart& part = link.part;
  const int32_t layers = LayersBefore(group, part.first_layer + part.layer_count) -
                         LayersBefore(group, part.first_layer);
  size_t layer_bytes = 0;
  for (const KvPlane& plane : group.planes) {
    layer_bytes += HeadsIn(plane, part).count * plane.head_bytes(layout.plane_tokens(group));
  }
  return layers * layer_bytes;
}

std::vector<WriteRun> PlanRuns(const KvLayout& layout,
                               const KvShard& source,
                               const KvShard& destination,
                               const KvLink& link,
                               std::span<const BlockPair> blocks) {
  const std::vector<WriteRun> in_block = RunsInBlock(layout, source, destination, link);
  if (layout.groups[link.cache_group].state) {
    return RunsInArenas(
        in_block, StatePlace(layout, source), StatePlace(layout, destination), blocks);
  }
  const uint64_t source_block = ShardBlockBytes(layout, source);
  const uint64_t destination_block = ShardBlockBytes(layout, destination);
  std::vector<WriteRun> runs;
  if (in_block.empty()) return runs;
  runs.reserve(blocks.size() * in_block.size());
  for (const BlockPair& block : blocks) {
    AppendBlock(runs,
                in_block,
                block.source.arena_index() * source_block,
                block.destination.arena_index() * destination_block);
  }
  return runs;
}

std::vector<BlockPair> PairsOfState(std::span<const BlockId> source,
                                    std::span<const BlockId> destination) {
  std::vector<BlockPair> pairs(std::max(source.size(), destination.size()), {kNoBlock, kNoBlock});
  for (size_t i = 0; i < source.size(); ++i) pairs[i].source = source[i];
  for (size_t i = 0; i < destination.size(); ++i) pairs[i].destination = destination[i];
  return pairs;
}

std::vector<ByteRange> BlockRanges(size_t block_bytes, std::span<const BlockId> blocks) {
  std::vector<BlockId> sorted(blocks.begin(), blocks.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<ByteRange> ranges;
  for (const BlockId block : sorted) {
    AppendRange(ranges, {static_cast<uint64_t>(block.arena_index()) * block_bytes, block_bytes});
  }
  return ranges;
}

}  // namespace baton
