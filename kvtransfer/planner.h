#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "kvtransfer/transport.h"

// Plans which bytes go from which rank to which rank. Pure functions. The unit that is never split
// is the K or the V of one head in one layer of one block (KvLayout::head_bytes).
namespace baton {

// The part of the KV that one sender shard contributes to one receiver shard.
struct KvLink {
  uint32_t source = 0;       // index of the sender's shard
  uint32_t destination = 0;  // index of the receiver's shard
  KvShard part;              // layers and heads of the whole model
  uint32_t group = 0;        // the layer group that contains `part` (SplitByLayers)
  bool operator==(const KvLink&) const = default;
};

struct BlockPair {
  BlockId source;
  BlockId destination;
};

// The links that fill every receiver shard exactly once. If several sender shards hold the same
// heads (more ranks than heads), the links are spread over these sender shards. Both sides compute
// the same list from the two HELLOs. InvalidArgument if a receiver shard cannot be filled, or if
// sender shards overlap in part.
StatusOr<std::vector<KvLink>> PlanLinks(std::span<const KvShard> sources,
                                        std::span<const KvShard> destinations);

// Splits `links` at the borders of layer groups (LayerGroups), in the same order: each layer group
// becomes a link of its own. Both sides do this as well.
std::vector<KvLink> SplitByLayers(const KvLayout& layout, std::span<const KvLink> links);

// The bytes of one block on `link`.
inline size_t LinkBlockBytes(const KvLayout& layout, const KvLink& link) {
  return ShardBlockBytes(layout, link.part);
}

// The writes of `blocks` on `link`: block after block, each block in the order of its destination
// bytes. Bytes that are contiguous on both sides form one run. Offsets are into the two arenas.
std::vector<WriteRun> PlanRuns(const KvLayout& layout,
                               const KvShard& source,
                               const KvShard& destination,
                               const KvLink& link,
                               std::span<const BlockPair> blocks);

// The tag of a write: the link, and the index in Grant::blocks of the first block.
inline uint64_t PieceTag(uint32_t link, uint32_t first) {
  return static_cast<uint64_t>(link) << 32 | first;
}

// Pieces of one link that have landed: blocks first … first + count - 1 of Grant::blocks.
struct PieceArrival {
  uint32_t link = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
  std::span<const uint64_t> checksums;  // one per block, if the grant wants checksums
};

// The byte ranges that `blocks` occupy in an arena with blocks of `block_bytes` bytes, ascending
// and merged.
std::vector<ByteRange> BlockRanges(size_t block_bytes, std::span<const BlockId> blocks);

}  // namespace baton
