#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/engine/request.h"
#include "common/kvcache/cache_event.h"

namespace baton {

// Blocks that now hold final KV of a kPrefill request: [first_index, first_index + blocks.size())
// of its block table. `last` = the whole prompt is there (the last block may be partly filled).
struct KvChunk {
  RequestId id;
  Epoch epoch;
  int32_t first_index = 0;
  std::span<const BlockId> blocks;
  bool last = false;
};

// Blocks reserved for a kDecode request. The first `cached_blocks` hold the prefix already and must
// not be written.
struct KvReservation {
  RequestId id;
  Epoch epoch;
  int32_t cached_blocks = 0;
  std::vector<BlockId> blocks;  // the whole block table of the prompt
};

// What the engine tells its worker. Called on the thread that runs Step(), in order; must not block
// and must not call Step(). Views are valid during the call only.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // All tokens of one step, of all requests.
  virtual void OnTokens(std::span<const TokenOutput> tokens) = 0;
  // Comes once for each request that has produced all its tokens, after the last OnTokens.
  virtual void OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) = 0;
  virtual void OnFailed(const RequestFailure& failure) = 0;
  // kPrefill: of `chunk`, which is still being computed, the KV of layers [0, layers) is final. The
  // blocks belong to the hand-off from here on. OnKvChunk with the same blocks follows, or
  // OnFailed. May be called on a thread of the device, but always before the step ends.
  virtual void OnKvLayers(const KvChunk&, int32_t /*layers*/) {}
  virtual void OnKvChunk(const KvChunk& chunk) = 0;                 // kPrefill
  virtual void OnKvReserved(const KvReservation& reservation) = 0;  // kDecode
  virtual void OnCacheEvent(const CacheEvent& event) = 0;
  // The engine computes nothing any more; why. Comes at most once, after OnFailed of all that were
  // inside.
  virtual void OnGaveUp(const Status&) {}
};

}  // namespace baton
