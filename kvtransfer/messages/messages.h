#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/layout.h"

// The control messages of a KV hand-off between a prefill worker (sender) and a decode worker
// (receiver). Every message is idempotent and may be lost, repeated or late. codec.h defines their
// encoding; README.md describes who sends which message when.
namespace baton {

constexpr uint32_t kKvProtocolVersion = 14;

// How one transport reaches a shard. The format of the descriptor is the transport's own.
struct KvEndpoint {
  std::string transport;  // the name, as for MakeTransport
  std::string descriptor;
  uint32_t region = 0;  // id of the registered memory at that endpoint
  bool operator==(const KvEndpoint&) const = default;
};

// One rank's arena: `block_count` blocks of the slice `shard`, one after the other.
struct KvShardInfo {
  KvShard shard;
  uint32_t block_count = 0;
  std::vector<KvEndpoint> endpoints;  // empty on the sending side
  bool operator==(const KvShardInfo&) const = default;
};

// The first message in both directions. The counts of `layout` are those of the whole model.
struct Hello {
  uint32_t version = kKvProtocolVersion;
  WorkerId worker;
  BootId boot;
  Hash128 model_fingerprint;
  Hash128 weights;  // of all bytes of the weights (common/model/weights_hash.h)
  KvLayout layout;
  std::vector<KvShardInfo> shards;
  bool operator==(const Hello&) const = default;
};

// The KV shards of a HELLO.
std::vector<KvShard> ShardsOf(const Hello& hello);
// The arena blocks of a state on the worker of a HELLO (StateBlocks).
uint32_t StateBlocksOf(const Hello& hello);

// Sender → receiver: the KV of a prompt of `total_tokens` tokens will follow.
struct Offer {
  uint32_t total_tokens = 0;
  Duration timeout{};  // of the whole hand-off, counted from receipt
  bool operator==(const Offer&) const = default;
};

// Receiver → sender: write the owed blocks of the prompt (OwedBlocks) into `blocks`, except the
// first `cached_blocks` blocks of tokens: blocks[g] are the last blocks of the prompt in cache
// group g. If group g has states, blocks[g] are the arena blocks of the state after the prompt, in
// order; none if all blocks are cached.
struct Grant {
  uint64_t window_key = 0;  // unguessable; writes into receiver shard i carry window_key + i
  uint32_t cached_blocks = 0;
  bool checksums = true;  // SEAL must carry checksums
  // The number of links (PlanLinks) that must arrive.
  uint32_t links = 1;
  // The most bytes per second that the sender may write into each receiver shard. 0: no bound.
  // Transports whose receiver paces (TransportCaps) ignore it.
  uint64_t bytes_per_second = 0;
  std::vector<std::vector<BlockId>> blocks = {};
  bool operator==(const Grant&) const = default;
};

// Receiver → sender: nothing was reserved; the sender may offer to another peer at once.
struct Refuse {
  Status status;
  bool operator==(const Refuse&) const = default;
};

// Sender → receiver: everything is written. `checksums` (kernels/granule_checksum.h) has one entry
// per link and granted block of the link's cache group, over the block's bytes on that link:
// link-major, in block order. A link of states has one entry, over the bytes of the state.
struct Seal {
  uint32_t blocks = 0;  // of all cache groups; those of a state are counted, too
  uint64_t bytes = 0;
  std::vector<uint64_t> checksums;
  std::string payload;  // opaque data of the workers: first tokens, sampler state
  bool operator==(const Seal&) const = default;
};

// Receiver → sender: these blocks arrived damaged; write them again and repeat SEAL. The last block
// of the prompt stands also for the state.
struct Resend {
  uint32_t attempt = 0;
  std::vector<uint32_t> blocks;  // blocks of tokens of the prompt, ascending
  bool operator==(const Resend&) const = default;
};

// Receiver → sender: committed; the source blocks are no longer needed.
struct Ack {
  uint64_t bytes = 0;
  bool operator==(const Ack&) const = default;
};

// Both directions: the session is alive. The receiver sends it only as an answer.
struct Renew {
  bool granted = false;  // the sender of this message knows the grant
  uint32_t pieces = 0;   // (block, link) pairs sent (sender) or arrived (receiver)
  bool operator==(const Renew&) const = default;
};

// Sender → receiver: no SEAL will follow.
struct Fail {
  Status status;
  bool operator==(const Fail&) const = default;
};

// Receiver → sender: stop writing. The sender answers DRAIN_ACK once no write is outstanding.
struct Abort {
  Status status;
  bool operator==(const Abort&) const = default;
};

// Sender → receiver: no write of the session is outstanding. found = false: the session is unknown,
// which proves that none of its writes is outstanding.
struct DrainAck {
  bool found = true;
  bool operator==(const DrainAck&) const = default;
};

// Receiver → sender: this worker leaves. Sessions under way continue; new ones must go elsewhere.
struct Bye {
  std::string reason;
  bool operator==(const Bye&) const = default;
};

using ControlMessage =
    std::variant<Hello, Offer, Grant, Refuse, Seal, Resend, Ack, Renew, Fail, Abort, DrainAck, Bye>;

// Identifies a session within a worker.
using SessionKey = std::pair<SessionId, Epoch>;

// A message with its session (session 0, epoch 0 for Hello and Bye).
struct Envelope {
  SessionId session;
  Epoch epoch;
  ControlMessage message;
  bool operator==(const Envelope&) const = default;
};

// "OFFER", "GRANT", …
std::string_view Name(const ControlMessage& message);

// OK when `theirs` may exchange KV with `ours`; else FailedPrecondition or InvalidArgument with the
// values of both sides: version, model, layout, shards.
Status CheckCompatible(const Hello& ours, const Hello& theirs);

// The blocks of a prompt that a hand-off owes to the receiver: those that a token after the prompt
// reads. In a cache group with a sliding window, these are the last ones alone. Both sides compute
// them from the length of the prompt and the layout. Of states it is the one after the last block
// of tokens, which counts as this block.
struct OwedBlocks {
  uint32_t count = 0;                 // blocks of tokens of the prompt
  std::vector<uint32_t> first = {0};  // by cache group: the first block that is owed
  bool state = false;                 // the last cache group has states

  // The number of cache groups of blocks of tokens, which come first.
  uint32_t block_groups() const { return static_cast<uint32_t>(first.size()) - (state ? 1 : 0); }
  // Whether `cache_group` has states.
  bool is_state(uint32_t cache_group) const { return state && cache_group + 1 == first.size(); }

  // The first block to write in a cache group when the receiver has the first `cached` blocks of
  // tokens.
  uint32_t from(uint32_t cache_group, uint32_t cached) const {
    return std::min(count, std::max(cached, first[cache_group]));
  }
};

OwedBlocks OwedBlocksOf(const KvLayout& layout, uint32_t prompt_tokens);

// InvalidArgument, with both numbers, when `grant` has other blocks than are owed. `state_blocks`
// are the arena blocks of a state of the receiver.
Status CheckOwed(const Grant& grant, const OwedBlocks& owed, uint32_t state_blocks = 0);
// InvalidArgument when states of `layout` cannot be handed off from or to `shard`: there is nothing
// beside them that counts the blocks of a prompt, or blocks of the shard are too small for a part.
Status CheckStates(const KvLayout& layout, const KvShard& shard);
// The blocks of all cache groups.
uint32_t BlocksIn(const Grant& grant);

// The number of blocks of a prompt; the last block may be partly filled.
inline uint32_t PromptBlocks(uint32_t tokens, int32_t block_tokens) {
  return (tokens + static_cast<uint32_t>(block_tokens) - 1) / static_cast<uint32_t>(block_tokens);
}

}  // namespace baton
