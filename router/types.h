#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/engine/engine.h"
#include "common/engine/request.h"
#include "kernels/sampling.h"

// The vocabulary of the router's decisions: plain values without gRPC types, so that the decisions
// also run in simulation.
namespace baton::router {

// The index of a worker in this router's tables. A slot is reused after its worker has left.
using WorkerSlot = StrongId<struct WorkerSlotTag, uint16_t>;
constexpr WorkerSlot kNoWorker{0xffff};
constexpr int kMaxWorkers = 128;

// The description of itself that a worker sends when it joins (worker.proto, Join).
struct WorkerInfo {
  WorkerId id;
  BootId boot;
  bool can_prefill = false;
  bool can_decode = false;
  std::string model;
  Hash128 fingerprint;  // hash of the model's spec and weights
  Hash128 shape;        // hash of the spec alone
  Hash128 tokenizer;    // zero: the worker does not know its tokenizer
  Hash128 secret_probe;
  std::string kv_layout;
  std::string kv_address;
  std::string admin_address;
  std::string device;   // the compute device, as text for operators
  std::string address;  // the remote address of the worker's stream
  int32_t block_tokens = 0;
  int32_t blocks = 0;
  int32_t max_sequences = 0;
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  int32_t max_step_tokens = 0;
  double itl_target_ms = 0;  // inter-token latency target (engine.itl_target_ms); 0: none
};

struct PeerTransport {
  std::string peer;
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  double gigabytes_per_second = 0;
};

// A heartbeat: the load that the worker reports. `stats.steps` is not transmitted.
struct WorkerLoad {
  EngineStats stats;
  Hash128 digest;
  uint64_t digest_sequence = 0;
  std::vector<PeerTransport> peers;
  int32_t blocks_quarantined = 0;
  bool draining = false;
};

// One user request, tokenised and checked; shared and immutable.
struct RequestSpec {
  RequestId id;
  std::vector<TokenId> prompt;
  std::vector<Hash128> hashes;  // of the prompt's full blocks
  SamplingParams sampling;
  int32_t samples = 1;
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;
  std::vector<TokenId> stop_tokens;
  int32_t priority = 0;
  std::string cache_salt;
  Time arrival{};
  Time deadline = kNever;
};

// ---- worker → router

struct FinishedReport {
  RequestId id;
  Epoch epoch;
  double queue_ms = 0;
  double prefill_ms = 0;
  int32_t cached_tokens = 0;
};

struct FailedReport {
  RequestId id;
  Epoch epoch;
  Status status;
  bool retryable = false;
};

struct HandoffReport {
  // kNotNeeded: the first token ended every sample, so no KV had to be handed off.
  enum class Outcome : uint8_t { kCommitted, kRefused, kFailed, kNotNeeded };
  RequestId id;
  Epoch epoch;
  Outcome outcome = Outcome::kFailed;
  Status status;  // the reason of kRefused or kFailed
  uint64_t bytes = 0;
  double transfer_ms = 0;
  double gigabytes_per_second = 0;
  std::string transport;
  int32_t reused_blocks = 0;
};

// The contents of one message from a worker after its Join (worker.proto, ToRouter).
struct WorkerReport {
  std::optional<WorkerLoad> load;
  std::vector<TokenOutput> tokens;
  std::vector<HandoffReport> handoffs;
  std::vector<FinishedReport> finished;
  std::vector<FailedReport> failed;
  std::vector<CacheEvent> cache_events;
  bool drain = false;
};

// ---- router → worker

struct Peer {
  WorkerId id;
  BootId boot;
  std::string kv_address;
};

struct DispatchCommand {
  std::shared_ptr<const RequestSpec> spec;
  Epoch epoch;
  RequestKind kind = RequestKind::kServe;
  std::vector<TokenId> resumed;  // output of earlier epochs, after the prompt
  int32_t first_sample = 0;
  int32_t samples = 1;
  SessionId session;
  Peer peer;
  Duration time_left{};  // zero: no deadline
};
struct CancelCommand {
  RequestId id;
  Epoch epoch;
  bool complete = false;  // the request was answered in full, for example by a stop string
};
// Ends one sample, whose client needs no more tokens. The other samples continue.
struct StopSampleCommand {
  RequestId id;
  Epoch epoch;
  int32_t sample = 0;
};
// Redirects a refused hand-off: the KV, which the prefill worker keeps under `epoch`, goes to
// another dispatch.
struct RedirectCommand {
  RequestId id;
  Epoch epoch;
  SessionId session;
  Epoch decode_epoch;  // the epoch of the decode worker's dispatch and of the session
  Peer peer;
};
struct SnapshotCommand {};
struct DrainWorkerCommand {
  bool keep = false;  // true: the process keeps running when it has no requests left
};
// Names a decode worker to a prefill worker, which may connect before the first hand-off.
struct MeetCommand {
  Peer peer;
};
using WorkerCommand = std::variant<DispatchCommand,
                                   CancelCommand,
                                   StopSampleCommand,
                                   RedirectCommand,
                                   SnapshotCommand,
                                   DrainWorkerCommand,
                                   MeetCommand>;

// ---- router → client

// One token of one sample, in order. Without a token: the end of the sample.
struct OutputToken {
  int32_t sample = 0;
  std::optional<SampledToken> token;
  FinishReason finish = FinishReason::kNone;
};

// The times of a request's phases and the workers that served it, for its client and the metrics.
struct RequestAccount {
  double queue_ms = 0;
  double prefill_ms = 0;
  double transfer_ms = 0;
  double ttft_ms = 0;
  double tpot_ms = 0;
  uint64_t transfer_bytes = 0;
  double transfer_gigabytes_per_second = 0;
  std::string transport;
  std::string prefill_worker;
  std::string decode_worker;
  int32_t attempts = 0;
  int32_t refusals = 0;
  int32_t cached_tokens = 0;
  int32_t generated_tokens = 0;
};

// The result of a request: its last event.
struct Outcome {
  Status status;
  bool retryable = false;
  RequestAccount account;
};

using ClientEvent = std::variant<OutputToken, Outcome>;

}  // namespace baton::router
