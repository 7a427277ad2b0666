#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"

namespace baton {

// The time that one rank of a worker has spent on steps since its start.
struct RankTimes {
  int64_t steps = 0;
  // The sum over the steps: from a step's start, or from the end of the step before when that is
  // later, to its end.
  double step_seconds = 0;
  // The part of `step_seconds` in exchanges with other ranks, waits for these ranks included. Unset
  // where there are none, or where the device does not tell.
  std::optional<double> exchange_seconds = {};

  bool operator==(const RankTimes&) const = default;
};

// The cache groups of a worker whose layers keep the same for sequences.
struct CacheGroupLoad {
  std::string name;    // "full", "window of 128", "latent" or "state"
  int32_t layers = 0;  // of all these groups
  uint64_t bytes = 0;  // of a block of tokens in these layers, or of a state, of the whole model
  int64_t blocks_held = 0;  // arena blocks that requests hold in these groups

  bool operator==(const CacheGroupLoad&) const = default;
};

// An engine's load, as heartbeats carry it.
struct EngineLoad {
  int32_t running = 0;        // sequences
  int32_t waiting = 0;        // sequences
  int32_t awaiting_kv = 0;    // requests
  int64_t queued_tokens = 0;  // prompt tokens that are not computed yet
  // Arena blocks. In heartbeats they are divided so that all of them are WorkerInfo::blocks, but
  // for those leaked.
  int32_t blocks_total = 0;
  int32_t blocks_free = 0;  // free, or cached without a user: available to a new request
  // Of blocks_free, those that kDecode requests will take whose prompt another worker has not
  // begun.
  int32_t blocks_expected = 0;
  int32_t blocks_cached = 0;
  int32_t blocks_leaked = 0;  // owned by nobody and not free: always 0
  int64_t prompt_tokens = 0;  // computed, since the start
  int64_t cached_tokens = 0;  // found in the prefix cache, since the start
  int64_t output_tokens = 0;  // since the start
  int64_t preemptions = 0;    // since the start
  // Guessed tokens that steps verified, since the start, and those that became output.
  int64_t drafts = 0;
  int64_t accepted_drafts = 0;
  // The fitted step time in milliseconds: base + per_token · decoding sequences + per_token_context
  // · Σ of their contexts + per_prompt_token · prompt tokens + per_prompt_token_context · Σ of
  // their contexts. 0: not known yet.
  double step_ms_base = 0;
  double step_ms_per_token = 0;
  double step_ms_per_token_context = 0;
  double step_ms_per_prompt_token = 0;
  double step_ms_per_prompt_token_context = 0;
  std::vector<RankTimes> ranks;  // by rank; a worker of one process has one entry

  // The milliseconds that one prompt token with a context of `context` tokens adds to a step.
  double PromptTokenMs(double context) const {
    return step_ms_per_prompt_token + step_ms_per_prompt_token_context * context;
  }

  bool operator==(const EngineLoad&) const = default;
};

// The sum of the hand-offs with one peer, since the start.
struct PeerTraffic {
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  // The latest rate while bytes moved, also of hand-offs under way. 0: not known, or no bytes moved
  // for a minute, or only the sender knows.
  double bytes_per_second = 0;
  // Why the transports that are preferred to `transport` are not in use, each with its reason.
  std::string not_taken = {};
  uint64_t writes = 0;           // write operations
  uint64_t resent_blocks = 0;    // written again, because they arrived damaged
  uint64_t checksum_errors = 0;  // blocks that arrived damaged
  uint64_t fences = 0;           // drains that only a fence ended
  uint32_t open = 0;             // hand-offs under way
  uint32_t quarantined_blocks = 0;
  double oldest_ms = 0;  // the age of the oldest hand-off under way

  // Adds the other direction's traffic with a peer that both prefills and decodes.
  PeerTraffic& operator+=(const PeerTraffic& other);
  bool operator==(const PeerTraffic&) const = default;
};

// A heartbeat: the worker's own account of its load.
struct WorkerLoad {
  EngineLoad engine;
  Hash128 digest;  // XOR of all cached block hashes as of cache event `digest_sequence`
  uint64_t digest_sequence = 0;
  std::map<WorkerId, PeerTraffic> peers;
  std::vector<CacheGroupLoad> cache_groups;
  int32_t blocks_quarantined = 0;  // of hand-offs whose peer may still read or write them
  bool draining = false;

  bool operator==(const WorkerLoad&) const = default;
};

}  // namespace baton
