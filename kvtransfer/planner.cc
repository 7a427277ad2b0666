#include "kvtransfer/planner.h"

#include <algorithm>

namespace baton {
namespace {

bool IsEmpty(const KvShard& shard) {
  return shard.layer_count <= 0 || shard.head_count <= 0;
}

int64_t Area(const KvShard& shard) {
  return static_cast<int64_t>(shard.layer_count) * shard.head_count;
}

KvShard Intersect(const KvShard& a, const KvShard& b) {
  KvShard both;
  both.first_layer = std::max(a.first_layer, b.first_layer);
  both.layer_count =
      std::min(a.first_layer + a.layer_count, b.first_layer + b.layer_count) - both.first_layer;
  both.first_head = std::max(a.first_head, b.first_head);
  both.head_count =
      std::min(a.first_head + a.head_count, b.first_head + b.head_count) - both.first_head;
  return both;
}

// Whether `part` is not covered yet by the disjoint links `taken` to `destination`. InvalidArgument
// if it overlaps one of them in part.
StatusOr<bool> IsNew(const KvShard& part, std::span<const KvLink> taken, uint32_t destination) {
  for (const KvLink& link : taken) {
    if (link.destination != destination) continue;
    const KvShard common = Intersect(part, link.part);
    if (IsEmpty(common)) continue;
    if (common == part) return false;
    return InvalidArgument(
        "sender shard {} and another one overlap in part (layers {}+{}, heads {}+{}); they must be "
        "equal or disjoint",
        link.source,
        common.first_layer,
        common.layer_count,
        common.first_head,
        common.head_count);
  }
  return true;
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

// The offset inside a block of `shard` of K (part 0) or V (part 1) of a head in a layer of the
// model.
uint64_t OffsetInBlock(
    const KvShard& shard, uint64_t head_bytes, int32_t layer, int part, int32_t head) {
  const uint64_t row = static_cast<uint64_t>(layer - shard.first_layer) * 2 + part;
  return (row * shard.head_count + static_cast<uint64_t>(head - shard.first_head)) * head_bytes;
}

}  // namespace

StatusOr<std::vector<KvLink>> PlanLinks(std::span<const KvShard> sources,
                                        std::span<const KvShard> destinations) {
  std::vector<KvLink> links;
  for (uint32_t d = 0; d < destinations.size(); ++d) {
    int64_t filled = 0;
    for (uint32_t i = 0; i < sources.size(); ++i) {
      // Each receiver shard starts at a different sender shard, so that its links to replicated
      // heads are spread over all ranks that hold them.
      const auto s = static_cast<uint32_t>((i + d) % sources.size());
      const KvShard part = Intersect(sources[s], destinations[d]);
      if (IsEmpty(part)) continue;
      BATON_ASSIGN_OR_RETURN(const bool is_new, IsNew(part, links, d));
      if (!is_new) continue;
      links.push_back({s, d, part, 0});
      filled += Area(part);
    }
    if (filled != Area(destinations[d])) {
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

std::vector<KvLink> SplitByLayers(const KvLayout& layout, std::span<const KvLink> links) {
  std::vector<KvLink> split;
  for (const KvLink& link : links) {
    int32_t first = 0;
    for (int32_t group = 0; group < LayerGroups(layout); ++group) {
      const int32_t end = LayerGroupEnd(layout, group);
      KvLink part = link;
      part.part = Intersect(link.part, {first, end - first, 0, layout.kv_heads});
      part.group = static_cast<uint32_t>(group);
      if (!IsEmpty(part.part)) split.push_back(part);
      first = end;
    }
  }
  return split;
}

std::vector<WriteRun> PlanRuns(const KvLayout& layout,
                               const KvShard& source,
                               const KvShard& destination,
                               const KvLink& link,
                               std::span<const BlockPair> blocks) {
  const uint64_t head_bytes = layout.head_bytes();
  const uint64_t source_block = ShardBlockBytes(layout, source);
  const uint64_t destination_block = ShardBlockBytes(layout, destination);
  const KvShard& part = link.part;
  // If both shards hold exactly the heads of the part, its layers are contiguous on both sides.
  const bool whole_rows =
      part.head_count == source.head_count && part.head_count == destination.head_count;
  const int32_t layer_step = whole_rows ? part.layer_count : 1;
  const int parts = whole_rows ? 1 : 2;
  const uint64_t run_bytes =
      whole_rows ? ShardBlockBytes(layout, part) : part.head_count * head_bytes;
  std::vector<WriteRun> runs;
  for (const BlockPair& block : blocks) {
    const uint64_t from = block.source.value() * source_block;
    const uint64_t to = block.destination.value() * destination_block;
    for (int32_t l = 0; l < part.layer_count; l += layer_step) {
      for (int p = 0; p < parts; ++p) {
        const int32_t layer = part.first_layer + l;
        Append(runs,
               {from + OffsetInBlock(source, head_bytes, layer, p, part.first_head),
                to + OffsetInBlock(destination, head_bytes, layer, p, part.first_head),
                run_bytes});
      }
    }
  }
  return runs;
}

std::vector<ByteRange> BlockRanges(size_t block_bytes, std::span<const BlockId> blocks) {
  std::vector<BlockId> sorted(blocks.begin(), blocks.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<ByteRange> ranges;
  for (const BlockId block : sorted) {
    const uint64_t offset = static_cast<uint64_t>(block.value()) * block_bytes;
    if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == offset) {
      ranges.back().bytes += block_bytes;
    } else {
      ranges.push_back({offset, block_bytes});
    }
  }
  return ranges;
}

}  // namespace baton
