#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/engine/listener.h"
#include "common/engine/model_runner.h"
#include "common/engine/options.h"
#include "common/engine/request.h"
#include "common/kvcache/layout.h"
#include "kernels/device.h"

namespace baton {

// Load, for heartbeats, metrics and `baton status`.
struct EngineStats {
  int32_t running = 0;        // sequences
  int32_t waiting = 0;        // sequences
  int32_t awaiting_kv = 0;    // requests
  int64_t queued_tokens = 0;  // prompt tokens not computed yet
  int32_t blocks_total = 0;
  int32_t blocks_free = 0;  // free or cached without a user: what a new request can get
  int32_t blocks_cached = 0;
  int32_t blocks_leaked = 0;  // owned by nobody and not free: always 0
  int32_t leases = 0;         // hand-offs that ReleaseKv has not ended yet
  int64_t steps = 0;
  int64_t failed_steps = 0;
  int64_t prompt_tokens = 0;  // computed, since the start
  int64_t cached_tokens = 0;  // found in the prefix cache, since the start
  int64_t output_tokens = 0;
  int64_t preemptions = 0;
  // Fitted step time in milliseconds: base, what a decoding sequence and each position that it sees
  // add, what a token of a prompt and each position that it sees add. 0: nothing is known yet.
  double step_ms_base = 0;
  double step_ms_per_token = 0;
  double step_ms_per_token_context = 0;
  double step_ms_per_prompt_token = 0;
  double step_ms_per_prompt_token_context = 0;
  // XOR of all cached block hashes as of cache event `cache_sequence`.
  Hash128 cache_digest;
  uint64_t cache_sequence = 0;
  // False after kFailedStepsToGiveUp failed steps in a row, or one that lost the device: every
  // request fails from then on.
  bool healthy = true;
};

// The generation engine: continuous batching over one model and one paged KV arena. It knows
// requests and tokens; nothing of text, networks or roles. Submit, Cancel, StopSample, Activate,
// ReleaseKv, RequestCacheSnapshot, BusyPollFor, WaitForWork, WaitUntilIdle and Stats may be called
// from any thread: changes are queued and take effect in the next Step(). All else happens in
// Step(), called by one thread (EngineLoop, or a test).
//
// KV ownership in a hand-off: the blocks of a kPrefill request that the listener was told of, and
// those of a kDecode request from reservation on, are held by a lease that ends only with
// ReleaseKv(id, epoch), the worker's word that no peer can read or write them any more. Neither
// cancelling a request nor a failed step ends its lease. ReleaseKv is called exactly once for every
// request that got an OnKvLayers, OnKvChunk or OnKvReserved.
class Engine final {
 public:
  static constexpr int kFailedStepsToGiveUp = 3;

  // Errors: InvalidArgument for options that cannot work together, ResourceExhausted when the arena
  // does not fit. `runner`, `listener` and `clock` outlive the engine.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                  ModelRunner& runner,
                                                  EngineListener& listener,
                                                  const Clock& clock);
  ~Engine();

  // Takes a request in; its outcome comes through the listener, errors too (a failed step, and
  // logits from which no token can be chosen, are Internal: another worker may succeed). Ignored
  // while a request of the same (id, epoch) lives.
  void Submit(Request request);
  // Ends a request at whatever point it is; OnFailed(Cancelled) follows unless it ended before.
  void Cancel(RequestId id, Epoch epoch);
  // Ends one sample as if it had finished: no more of its tokens come, the others go on. A sample
  // that is not there, or has ended, is ignored.
  void StopSample(RequestId id, Epoch epoch, int32_t sample);
  // The prompt KV of a kDecode request is complete in its reserved blocks, and its samples' first
  // tokens are chosen: generation goes on from there. The first tokens are not emitted again.
  // Ignored when the request has ended.
  void Activate(RequestId id, Epoch epoch, std::vector<SampledToken> first_tokens);
  // On a kPrefill request that is still computing it also means that no more chunks are wanted.
  void ReleaseKv(RequestId id, Epoch epoch);

  // Takes in what was queued and runs at most one step. False when there was nothing to do.
  bool Step();
  // Waits until something is queued, or `timeout`. For the thread that calls Step().
  void WaitForWork(Duration timeout);
  // Work is due: WaitForWork busy-polls for `duration` instead of sleeping.
  void BusyPollFor(Duration duration);
  // Waits until no request is inside (leases may be); false when `timeout` passes first. Whoever
  // drains stops submitting before.
  bool WaitUntilIdle(Duration timeout);

  // As of the last Step(); what was submitted since counts as waiting.
  EngineStats Stats() const;
  // Everything in the prefix cache: queued like Submit, answered through OnCacheEvent as kCleared
  // followed by kStored of everything, with sequence numbers of their own.
  void RequestCacheSnapshot();

  const KvLayout& kv_layout() const;
  const Buffer& kv_arena() const;
  int32_t kv_block_count() const;

  // OK when every block is either free or owned by a live lease, and the books agree; else Internal
  // naming the first disagreement. Only on Step()'s thread.
  Status CheckIntegrity() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
