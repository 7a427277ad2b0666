#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/cluster/request.h"
#include "common/kvcache/cache_event.h"

namespace baton {

// A request that ended without completing: it was cancelled, ran out of time or was refused, a step
// with it failed, or the engine gave up.
struct RequestFailure {
  RequestId id;
  Epoch epoch;
  Status status;
};

// Blocks of a kPrefill request whose KV is final: the blocks of tokens from `first_index` on, and
// for each of them one arena block of each cache group of blocks of tokens. `last`: the whole
// prompt is computed (the last block may be partly filled). Then `state` has the blocks of the
// state after the prompt, if layers have states.
struct KvChunk {
  RequestId id;
  Epoch epoch;
  int32_t first_index = 0;
  int32_t groups = 1;  // cache groups of blocks of tokens
  std::span<const BlockId> blocks;
  std::span<const BlockId> state = {};
  bool last = false;
};

// Blocks reserved for a kDecode request. The first `cached_blocks` blocks of tokens already hold
// the prefix and must not be written.
struct KvReservation {
  RequestId id;
  Epoch epoch;
  int32_t cached_blocks = 0;
  // The whole block table of the prompt: for each block of tokens one of each cache group of blocks
  // of tokens.
  std::vector<BlockId> blocks;
  // The blocks of the state after the prompt, if layers have states.
  std::vector<BlockId> state = {};
};

// Receives the results of the engine; the worker implements it. The methods are called in order on
// the thread that runs Step(), except OnKvLayers. They must not block and must not call Step().
// Views are valid during the call only.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // The tokens of one step, for all requests.
  virtual void OnTokens(std::span<const TokenOutput> tokens) = 0;
  // Called once for each request that has produced all its tokens, after its last OnTokens.
  virtual void OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) = 0;
  // Follows the OnTokens and the OnFinished of one step, so that both can be sent together.
  virtual void OnOutputEnd() {}
  virtual void OnFailed(const RequestFailure& failure) = 0;
  // kPrefill: the request has all blocks of its prompt and keeps them until the prompt is computed:
  // it is never preempted. Called once, before its first chunk.
  virtual void OnPromptStarted(RequestId, Epoch) {}
  // kPrefill: `chunk` is still being computed, but its KV of layers [0, layers) is final. The lease
  // of the hand-off holds the blocks from this call on. OnKvChunk with the same blocks follows, or
  // OnFailed. Called before the step ends, on a thread of the device or on the thread of Step().
  virtual void OnKvLayers(const KvChunk&, int32_t /*layers*/) {}
  virtual void OnKvChunk(const KvChunk& chunk) = 0;                 // kPrefill
  virtual void OnKvReserved(const KvReservation& reservation) = 0;  // kDecode
  virtual void OnCacheEvent(const CacheEvent& event) = 0;
  // The engine gave up and computes nothing any more; the status is the reason. Called at most
  // once, after OnFailed for all active requests. Every later request gets OnFailed.
  virtual void OnGaveUp(const Status&) {}
};

}  // namespace baton
