#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/cluster/load.h"
#include "common/cluster/request.h"
#include "common/engine/executor.h"
#include "common/engine/listener.h"
#include "common/engine/options.h"
#include "common/grammar/grammar.h"

namespace baton {

// The engine's load, and what only its process sees.
struct EngineStats : EngineLoad {
  int32_t leases = 0;  // hand-offs that ReleaseKv has not ended yet
  int32_t held = 0;    // requests among `waiting` that wait for PeerReady
  int64_t steps = 0;
  int64_t failed_steps = 0;
  double bubble_seconds = 0;  // Executor::bubble
  // XOR of all cached block hashes as of cache event `cache_sequence`.
  Hash128 cache_digest;
  uint64_t cache_sequence = 0;
  std::vector<int32_t> blocks_by_group;  // KvCache::held
  // False after kFailedStepsToGiveUp failed steps in a row, or after one step that lost the device.
  // Every request fails from then on.
  bool healthy = true;
  // First masks of constrained requests that are being computed.
  int32_t first_masks = 0;
};

// The generation engine: continuous batching over the model and the paged KV arena of its executor.
// It handles requests and tokens and does not depend on text, networks or roles. Submit, Cancel,
// StopSample, PeerReady, Activate, ReleaseKv, RequestCacheSnapshot, BusyPollFor, WaitForWork,
// WaitUntilIdle and Stats may be called from any thread: changes are queued and take effect in the
// next Step(). Everything else happens in Step(), which one thread calls (EngineLoop, or a test).
//
// KV ownership in a hand-off: a lease holds the blocks of a kPrefill request from the moment they
// are reported to the listener, and the blocks of a kDecode request from the reservation on. The
// lease ends only with ReleaseKv(id, epoch), by which the worker guarantees that no peer can read
// or write the blocks any more. A cancel or a failed step does not end the lease. ReleaseKv must be
// called exactly once for every request that received OnKvLayers, OnKvChunk or OnKvReserved.
class Engine final {
 public:
  static constexpr int kFailedStepsToGiveUp = 3;

  // InvalidArgument for options that are out of range or do not fit the model. References outlive
  // the engine, and so does `grammars`; without it, constrained requests are refused.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                  Executor& executor,
                                                  EngineListener& listener,
                                                  const Clock& clock,
                                                  GrammarCompiler* grammars = nullptr);
  ~Engine();

  // Accepts a request. The listener receives its tokens and its end, errors included. A failed step
  // and logits from which no token can be chosen are Internal: another worker may succeed. Ignored
  // while a request with the same (id, epoch) is active.
  void Submit(Request request);
  // Ends a request in any state. OnFailed(Cancelled) follows unless the request ended before.
  void Cancel(RequestId id, Epoch epoch);
  // Ends one sample as if it had finished: no more of its tokens are sent, and the other samples
  // continue. Ignored when the sample does not exist or has ended.
  void StopSample(RequestId id, Epoch epoch, int32_t sample);
  // The other worker of the hand-off has its blocks, so a request with `peer_first` may take its
  // own. Ignored when the request is not held, or has ended.
  void PeerReady(RequestId id, Epoch epoch);
  // Starts the generation of a kDecode request: its prompt KV is complete in its reserved blocks,
  // and `first_tokens` has the first token of each sample. The first tokens are not emitted again.
  // Ignored when the request has ended.
  void Activate(RequestId id, Epoch epoch, std::vector<SampledToken> first_tokens);
  // Ends the lease of a hand-off. When a kPrefill request is still computing its prompt, the engine
  // also reports no more chunks of it.
  void ReleaseKv(RequestId id, Epoch epoch);

  // Applies the queued changes and runs at most one step. False when there was nothing to do.
  bool Step();
  // Waits until a change is queued, at most `timeout`. For the thread that calls Step().
  void WaitForWork(Duration timeout);
  // Makes WaitForWork busy-poll for `duration` instead of sleeping, because work is due soon.
  void BusyPollFor(Duration duration);
  // Waits until no request is active; leases may remain. False when `timeout` passes first. The
  // caller must stop submitting before.
  bool WaitUntilIdle(Duration timeout);

  // The state after the last Step(). Requests submitted since then count as waiting.
  EngineStats Stats() const;
  // Requests a snapshot of the prefix cache. Queued like Submit; OnCacheEvent then receives
  // kCleared and kStored events for all entries, with the next sequence numbers. `clear`: removes
  // all entries before. Running sequences keep their blocks.
  void RequestCacheSnapshot(bool clear = false);

  // OK when every block is free or owned by a live lease and all counters are consistent; else
  // Internal naming the first inconsistency. Only on the thread that calls Step().
  Status CheckIntegrity() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
