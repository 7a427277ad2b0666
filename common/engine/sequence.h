#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/engine/ordering.h"
#include "common/engine/request.h"
#include "common/kvcache/block_hash.h"
#include "common/kvcache/lease.h"
#include "common/kvcache/prefix_cache.h"

namespace baton {

// (id, epoch): what names a request in one engine.
using RequestKey = std::pair<RequestId, Epoch>;

enum class SequenceState : uint8_t { kWaiting, kAwaitingKv, kRunning, kFinished };

std::string_view Name(SequenceState state);

// The only changes of state there are; kSequenceMoves[from][to].
inline constexpr std::array<std::array<bool, 4>, 4> kSequenceMoves = {{
    // waiting  awaiting_kv  running  finished
    {false, true, true, true},    // waiting
    {false, false, true, true},   // awaiting_kv
    {true, false, false, true},   // running (to waiting: preempted)
    {false, false, false, false}  // finished
}};

struct ActiveRequest;

// One sample of a request: its tokens, and the blocks that hold their KV. Owned by its request,
// changed by the scheduler alone.
struct Sequence {
  ActiveRequest* request = nullptr;
  int32_t index = 0;  // among the request's samples in this engine
  SequenceState state = SequenceState::kWaiting;
  Rank rank;
  std::vector<TokenId> tokens;  // prompt and output
  int32_t computed = 0;         // tokens whose KV is in `table`
  Lease table;
  int32_t slots = 0;     // of the sequence limit; a leader holds those of all its samples
  int32_t promised = 0;  // blocks it may still take (kGuaranteedNoEvict)

  // What the prefix cache knows of it: `stored` blocks, the last of them as `chain`. Nothing more
  // is stored once the chain is broken (hash collision).
  std::vector<Hash128> hashes;
  int32_t stored = 0;
  CacheEntryId chain = kRootEntry;
  bool chain_broken = false;

  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  int32_t remaining() const { return length() - computed; }
  // Changes the state; a move that the table does not allow stops the process.
  void MoveTo(SequenceState to);
};

// A request from Add to its end. The first sequence, the leader, computes the prompt; the other
// samples are forked off when the first tokens are chosen.
struct ActiveRequest {
  explicit ActiveRequest(BlockHasher block_hasher) : hasher(block_hasher) {}

  Request request;  // `tokens` has moved to the leader
  uint64_t serial = 0;
  BlockHasher hasher;
  std::vector<SamplingParams> sampling;  // by sample, each with its own seed
  std::vector<Sequence> sequences;       // reserved for all samples: pointers stay valid
  int32_t live = 0;                      // sequences that are not finished
  int32_t longest = 0;                   // most tokens a sequence may have
  bool forked = false;
  std::set<int32_t> stopped;  // by StopSample before the fork: they end with it
  bool activated = false;     // kDecode: the prompt's KV has come
  bool kv_released = false;   // kPrefill: the worker wants no more of its KV
  bool started = false;
  Time reserve_by = kNever;  // kDecode: when waiting for blocks ends
  Time first_step{};
  RequestTimes times;

  RequestKey key() const { return {request.id, request.epoch}; }
  bool awaits_reservation() const { return request.kind == RequestKind::kDecode && !activated; }
  // When it ends in the state it is in.
  Time expiry() const {
    const bool queued = awaits_reservation() && sequences[0].state == SequenceState::kWaiting;
    return queued ? std::min(request.deadline, reserve_by) : request.deadline;
  }
};

// The seed that sample `sample` of a request draws with: SplitMix64 (Steele, Lea, Flood 2014) of
// seed + sample · 2^64/φ.
uint64_t SampleSeed(uint64_t seed, int32_t sample);

}  // namespace baton
