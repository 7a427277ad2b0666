#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/engine/request.h"
#include "common/kvcache/layout.h"
#include "common/model/decoder.h"
#include "kernels/ops.h"

namespace baton {

enum class SchedulingPolicy { kFcfs, kPriority, kShortestPrefill, kDeadline };
enum class AdmissionPolicy {
  kMaxUtilization,     // admit when the prompt fits; preempt when blocks run out
  kGuaranteedNoEvict,  // admit when prompt + max_tokens fit: a running sequence is never preempted
};

struct EngineOptions {
  int32_t max_step_tokens = 512;  // token budget of one step
  int32_t max_sequences = 256;    // in one step
  int32_t max_waiting = 4096;     // requests; more are refused with ResourceExhausted
  int32_t kv_blocks = 0;          // arena size in blocks; 0: from kv_memory_bytes
  size_t kv_memory_bytes = size_t{1} << 30;
  int32_t block_tokens = 16;
  DType kv_dtype = DType::kF16;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  AdmissionPolicy admission = AdmissionPolicy::kMaxUtilization;
  bool prefix_cache = true;
  uint64_t hash_secret =
      0;  // of the cluster; seeds block hashes together with the model fingerprint
};

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

// A change of the prefix cache, in order. Sequence numbers count from 1 per boot.
struct CacheEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  uint64_t sequence = 0;
  Kind kind = Kind::kStored;
  std::vector<Hash128> blocks;
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
  virtual void OnKvChunk(const KvChunk& chunk) = 0;                 // kPrefill
  virtual void OnKvReserved(const KvReservation& reservation) = 0;  // kDecode
  virtual void OnCacheEvent(const CacheEvent& event) = 0;
};

// Load, for heartbeats, metrics and `baton status`.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t awaiting_kv = 0;
  int64_t queued_tokens = 0;  // prompt tokens not computed yet
  int32_t blocks_total = 0;
  int32_t blocks_free = 0;  // free or cached without a user: what a new request can get
  int32_t blocks_cached = 0;
  int32_t blocks_leaked = 0;  // owned by nobody and not free: always 0
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed, since the start
  int64_t cached_tokens = 0;  // found in the prefix cache, since the start
  int64_t output_tokens = 0;
  int64_t preemptions = 0;
  // Fitted step time: a + b·tokens + c·tokens·context, milliseconds.
  double step_ms_base = 0;
  double step_ms_per_token = 0;
  double step_ms_per_token_context = 0;
};

// The generation engine: continuous batching over one model and one paged KV arena. It knows
// requests and tokens; nothing of text, networks or roles. Submit, Cancel, Activate, ReleaseKv and
// Stats may be called from any thread: they are queued and take effect in the next Step(). All else
// happens in Step(), called by one thread (EngineLoop, or a test).
//
// KV ownership in a hand-off: the blocks of a kPrefill request after its last token, and those of a
// kDecode request from reservation on, are held by a lease that ends only with ReleaseKv(id,
// epoch), the worker's word that no peer can read or write them any more. Cancelling a request does
// not end its lease. ReleaseKv is called exactly once for every kPrefill and kDecode request that
// got an OnKvChunk or OnKvReserved.
class Engine final {
 public:
  // Errors: InvalidArgument for options that cannot work together, ResourceExhausted when the arena
  // does not fit. `decoder`, `listener` and `clock` outlive the engine.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                  Decoder& decoder,
                                                  EngineListener& listener,
                                                  const Clock& clock);
  ~Engine();

  // Takes a request in; its outcome comes through the listener, errors too.
  void Submit(Request request);
  // Ends a request at whatever point it is; OnFailed(Cancelled) follows unless it ended before.
  void Cancel(RequestId id, Epoch epoch);
  // The prompt KV of a kDecode request is complete in its reserved blocks, and its samples' first
  // tokens are chosen: generation goes on from there. The first tokens are not emitted again.
  void Activate(RequestId id, Epoch epoch, std::vector<SampledToken> first_tokens);
  void ReleaseKv(RequestId id, Epoch epoch);

  // Takes in what was queued and runs at most one step. False when there was nothing to do.
  bool Step();
  // Waits until something is queued, or `timeout`. For the thread that calls Step().
  void WaitForWork(Duration timeout);

  EngineStats Stats() const;
  // Everything in the prefix cache, with the sequence number of the last event it contains. Queued
  // like Submit; answered through OnCacheEvent as kCleared followed by kStored of everything.
  void RequestCacheSnapshot();
  // XOR of all cached block hashes, as of the last event.
  Hash128 CacheDigest() const;

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
