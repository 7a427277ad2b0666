#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/cluster/request.h"
#include "common/engine/lookup_drafter.h"
#include "common/engine/ordering.h"
#include "common/grammar/grammar.h"
#include "common/kvcache/block_hash.h"
#include "common/kvcache/lease.h"
#include "common/kvcache/prefix_cache.h"

namespace baton {

enum class SequenceState : uint8_t { kWaiting, kAwaitingKv, kRunning, kFinished };

std::string_view Name(SequenceState state);

// The allowed changes of state: kSequenceMoves[from][to].
inline constexpr std::array<std::array<bool, 4>, 4> kSequenceMoves = {{
    // waiting  awaiting_kv  running  finished
    {false, true, true, true},    // waiting
    {false, false, true, true},   // awaiting_kv
    {true, false, false, true},   // running (to waiting: preempted)
    {false, false, false, false}  // finished
}};

struct ActiveRequest;
struct SequenceMask;

// One sample of a request: its tokens, and the blocks that hold their KV. Owned by its request;
// only the scheduler changes it.
struct Sequence {
  ActiveRequest* request = nullptr;
  int32_t index = 0;  // among the request's samples in this engine
  SequenceState state = SequenceState::kWaiting;
  Rank rank;
  std::vector<TokenId> tokens;  // prompt and output
  int32_t drafts = 0;           // of these at the end, guesses that a step under way verifies
  int32_t computed = 0;         // tokens whose KV is in `table`
  int32_t under_way = 0;        // tokens after these that the steps under way compute
  // The state has the next row already, because the step before could not choose the row's token.
  bool in_state = false;
  bool reading = false;  // a row under way reads `read_state`
  Lease table;
  int32_t slots = 0;  // its share of the sequence limit; before the fork, one slot per sample
  // kGuaranteedNoEvict: the blocks that it may still take. With a sliding window: the most blocks
  // that it may hold at a time.
  int32_t promised = 0;

  // Of a constrained request; made with its first mask (SequenceMasks).
  std::shared_ptr<SequenceMask> mask;

  // The first `stored` blocks are in the prefix cache; `chain` is the entry of the last of them.
  // After a hash collision the chain is broken, and no more blocks are stored.
  std::vector<Hash128> hashes;
  int32_t stored = 0;
  CacheEntryId chain = kRootEntry;
  bool chain_broken = false;

  // The state that its next row reads, or that a row under way reads, if it is not the one that the
  // row writes, that of `table`. Null: they are the same.
  std::unique_ptr<Lease> read_state;

  std::unique_ptr<LookupDrafter> drafter;  // of `tokens`; null before the first draft

  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
  int32_t remaining() const { return length() - drafts - computed; }
  // The tokens that are computed when the steps under way have ended, and those after them.
  int32_t planned() const { return computed + under_way; }
  int32_t unplanned() const { return length() - planned(); }
  // Changes the state. A change that kSequenceMoves does not allow stops the process.
  void MoveTo(SequenceState to);
};

// What constrains the output of a request; empty: nothing.
struct Constraint {
  std::shared_ptr<const Grammar> grammar;
  // Of the next token, computed; null for a request that chooses no token before Activate.
  std::shared_ptr<SequenceMask> first_mask;
};

// A request from Add to its end. The first sequence, the leader, computes the prompt. The other
// samples are forked from it when the first tokens are chosen.
struct ActiveRequest {
  explicit ActiveRequest(BlockHasher block_hasher) : hasher(block_hasher) {}

  Request request;  // `tokens` has moved to the leader
  uint64_t serial = 0;
  BlockHasher hasher;
  std::shared_ptr<const Grammar> grammar;  // of `request.grammar`, or null
  std::vector<SamplingParams> sampling;    // by sample, each with its own seed
  std::vector<Sequence> sequences;         // reserved for all samples: pointers stay valid
  int32_t live = 0;                        // sequences that are not finished
  int32_t longest = 0;                     // most tokens a sequence may have
  bool forked = false;
  std::set<int32_t> stopped;  // samples that StopSample ended before the fork; they end at the fork
  bool activated = false;     // kDecode: the prompt's KV has arrived
  bool kv_released = false;   // kPrefill: ReleaseKv was called; no more chunks are reported
  int32_t leased_blocks = 0;  // kPrefill: blocks of tokens in the chunks so far
  // RequestOptions::prompt_logprobs: how the rows of the prompt are sampled, at how many of its
  // first positions, how many of these are computed or under way, and the results. A request that
  // pools has as many states there.
  SamplingParams prompt_sampling;
  int32_t to_score = 0;
  int32_t scored = 0;
  std::vector<SampledToken> prompt_logprobs;
  std::vector<float> pooled;  // of a request that pools: of the states so far (Pool)
  bool started = false;
  Time added{};
  Time reserve_by = kNever;  // kDecode: when the wait for blocks ends
  Time first_step{};
  RequestTimes times;

  RequestKey key() const { return {request.id, request.epoch}; }
  bool awaits_reservation() const { return request.kind == RequestKind::kDecode && !activated; }
  // A token is chosen by a mask or by penalties, so the tokens before it must be known.
  bool chooses_by_output() const {
    return grammar != nullptr || request.sampling.depends_on_output();
  }
  // Waits for PeerReady; its sequence is in no queue.
  bool held() const { return request.peer_first; }
  // When the request ends if its state does not change.
  Time expiry() const {
    const bool queued = awaits_reservation() && sequences[0].state == SequenceState::kWaiting;
    return queued ? std::min(request.deadline, reserve_by) : request.deadline;
  }
};

// The seed of sample `sample` of a request with seed `seed`: SplitMix64 (Steele, Lea, Flood 2014)
// of seed + sample · 2^64/φ.
uint64_t SampleSeed(uint64_t seed, int32_t sample);

}  // namespace baton
