#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/cluster/request.h"
#include "common/engine/listener.h"

namespace baton {

// The results of the scheduler, in the order in which EngineListener receives them: starts, chunks
// and reservations, then tokens, then ends.
struct Outcomes {
  struct Chunk {
    RequestId id;
    Epoch epoch;
    int32_t first_index = 0;
    int32_t groups = 1;  // as in KvChunk
    std::vector<BlockId> blocks;
    std::vector<BlockId> state = {};
    bool last = false;

    // Valid while the chunk is.
    KvChunk view() const {
      return {.id = id,
              .epoch = epoch,
              .first_index = first_index,
              .groups = groups,
              .blocks = blocks,
              .state = state,
              .last = last};
    }
  };
  struct Finish {
    RequestId id;
    Epoch epoch;
    RequestTimes times;
  };
  std::vector<RequestKey> started;  // kPrefill requests that were admitted
  std::vector<Chunk> chunks;
  std::vector<KvReservation> reservations;
  std::vector<TokenOutput> tokens;
  std::vector<Finish> finished;
  std::vector<RequestFailure> failures;

  bool empty() const {
    return started.empty() && chunks.empty() && reservations.empty() && tokens.empty() &&
           finished.empty() && failures.empty();
  }
};

// The scheduler's part of EngineStats.
struct SchedulerCounts {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t awaiting_kv = 0;
  int64_t queued_tokens = 0;
  int32_t expected_blocks = 0;
  int32_t held = 0;
  int32_t held_leases = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int64_t drafts = 0;           // verified
  int64_t accepted_drafts = 0;  // and equal to the tokens that were chosen
  int64_t preemptions = 0;
};

}  // namespace baton
