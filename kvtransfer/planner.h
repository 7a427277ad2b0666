#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "kvtransfer/transport.h"

// Which bytes go from which rank to which rank. Pure. The unit that never splits is the K or the V
// of one head in one layer of one block (KvLayout::head_bytes).
namespace baton {

// What one sender shard contributes to one receiver shard.
struct KvLink {
  uint32_t source = 0;       // index of the sender's shard
  uint32_t destination = 0;  // index of the receiver's shard
  KvShard part;              // in terms of the whole model
  uint32_t group = 0;        // the layer group that `part` lies in (SplitByLayers)
  bool operator==(const KvLink&) const = default;
};

struct BlockPair {
  BlockId source;
  BlockId destination;
};

// The links that fill every receiver shard exactly once. Where several sender shards hold the same
// heads (more ranks than heads), the copies are spread over them. Both sides compute the same list
// from the two HELLOs. InvalidArgument when a receiver shard cannot be filled, or when sender
// shards overlap in part.
StatusOr<std::vector<KvLink>> PlanLinks(std::span<const KvShard> sources,
                                        std::span<const KvShard> destinations);

// `links` cut at the borders of layer groups (LayerGroups), in the same order: what one layer group
// contributes is a link of its own. Both sides do this, too.
std::vector<KvLink> SplitByLayers(const KvLayout& layout, std::span<const KvLink> links);

// Bytes of one block that cross `link`.
inline size_t LinkBlockBytes(const KvLayout& layout, const KvLink& link) {
  return ShardBlockBytes(layout, link.part);
}

// The writes of `blocks` over `link`, block after block, each in the order of its destination
// bytes; neighbours on both sides are one run. Offsets are into the two arenas.
std::vector<WriteRun> PlanRuns(const KvLayout& layout,
                               const KvShard& source,
                               const KvShard& destination,
                               const KvLink& link,
                               std::span<const BlockPair> blocks);

// The tag of a write: which link's pieces, and from which index of Grant::blocks on.
inline uint64_t PieceTag(uint32_t link, uint32_t first) {
  return static_cast<uint64_t>(link) << 32 | first;
}

// The ranges of an arena that `blocks` of `shard` take, ascending and merged.
std::vector<ByteRange> BlockRanges(size_t block_bytes, std::span<const BlockId> blocks);

}  // namespace baton
