#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"
#include "kvtransfer/transport.h"

// Plans which bytes go from which rank to which rank. Pure functions. In a block of tokens, the
// unit that is never split is one head of one plane in one layer (KvPlane::head_bytes). A state is
// split wherever a block of either side ends.
namespace baton {

// The part of the KV that one sender shard contributes to one receiver shard: heads of the sharded
// planes (none if head_count is 0) and, if `replicated`, the replicated planes of some layers of
// the model.
struct KvPart {
  int32_t first_layer = 0;
  int32_t layer_count = 0;
  int32_t first_head = 0;
  int32_t head_count = 0;
  bool replicated = false;
  bool operator==(const KvPart&) const = default;
};

// One sender shard, one receiver shard, one layer group, one cache group. Several links share a
// state of more than kMaxStateLinkBytes.
struct KvLink {
  uint32_t source = 0;       // index of the sender's shard
  uint32_t destination = 0;  // index of the receiver's shard
  uint32_t layer_group = 0;  // of KvLayout::layer_group_ends
  uint32_t cache_group = 0;  // of KvLayout::groups
  KvPart part;
  bool operator==(const KvLink&) const = default;
};

// The layer group and the cache group of a link.
struct LinkGroups {
  uint32_t layer_group = 0;
  uint32_t cache_group = 0;
};
inline LinkGroups GroupsOf(const KvLink& link) {
  return {link.layer_group, link.cache_group};
}

struct BlockPair {
  BlockId source;
  BlockId destination;
};

// The other side's half of a BlockPair where one side has more blocks of a state. It is not read.
inline constexpr BlockId kNoBlock(UINT32_MAX);

// The most bytes of a state on one link, unless one head has more. A piece is one write, which must
// fit the staging buffers of every transport, and writes of about this size overlap well.
inline constexpr size_t kMaxStateLinkBytes = size_t{2} << 20;

// The links that fill every receiver shard exactly once. If several sender shards hold the same
// heads (more ranks than heads, replicated planes), the links are spread over these sender shards.
// Both sides compute the same list from the two HELLOs. InvalidArgument if a receiver shard cannot
// be filled, or if sender shards overlap in part.
StatusOr<std::vector<KvLink>> PlanLinks(const KvLayout& layout,
                                        std::span<const KvShard> sources,
                                        std::span<const KvShard> destinations);

// The bytes of one block, or of one state, on `link`: the bytes of a piece.
size_t LinkBlockBytes(const KvLayout& layout, const KvLink& link);

// The writes of `blocks`, which belong to the link's cache group: block after block, each block in
// the order of its destination bytes. If the group has states, `blocks` are the blocks of one state
// (PairsOfState). Bytes that are contiguous on both sides form one run. Offsets are into the two
// arenas.
std::vector<WriteRun> PlanRuns(const KvLayout& layout,
                               const KvShard& source,
                               const KvShard& destination,
                               const KvLink& link,
                               std::span<const BlockPair> blocks);

// The blocks of a state on both sides, each list in its order. The shorter list is continued with
// kNoBlock.
std::vector<BlockPair> PairsOfState(std::span<const BlockId> source,
                                    std::span<const BlockId> destination);

// The tag of a write: the link, and the index of the first block among those that were granted in
// the link's cache group; 0 for a state.
inline uint64_t PieceTag(uint32_t link, uint32_t first) {
  return static_cast<uint64_t>(link) << 32 | first;
}

// Pieces of one link that have landed: blocks first … first + count - 1 of those that were granted
// in the link's cache group, or the one piece of a state.
struct PieceArrival {
  uint32_t link = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
  std::span<const uint64_t> checksums;  // one per piece, if the grant wants checksums
};

// The byte ranges that `blocks` occupy in an arena with blocks of `block_bytes` bytes, ascending
// and merged.
std::vector<ByteRange> BlockRanges(size_t block_bytes, std::span<const BlockId> blocks);

}  // namespace baton
