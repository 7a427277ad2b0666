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

// The words of the router's logic: plain values, free of gRPC, so that the logic runs in
// simulation.
namespace baton::router {

// A worker's place in this router's tables; reused after the worker left.
using WorkerSlot = StrongId<struct WorkerSlotTag, uint16_t>;
constexpr WorkerSlot kNoWorker{0xffff};
constexpr int kMaxWorkers = 128;

// What a worker says of itself when it joins (worker.proto, Join).
struct WorkerInfo {
  WorkerId id;
  BootId boot;
  bool can_prefill = false;
  bool can_decode = false;
  std::string model;
  Hash128 fingerprint;  // of spec and weights
  Hash128 shape;        // of the spec alone
  Hash128 tokenizer;    // zero: not known to the worker
  Hash128 secret_probe;
  std::string kv_layout;
  std::string kv_address;
  std::string admin_address;
  std::string device;   // that computes, for people
  std::string address;  // where its stream comes from
  int32_t block_tokens = 0;
  int32_t blocks = 0;
  int32_t max_sequences = 0;
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  int32_t max_step_tokens = 0;
  double itl_target_ms = 0;  // that it keeps for those who generate beside prompts; 0: none
};

struct PeerTransport {
  std::string peer;
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  double gigabytes_per_second = 0;
};

// A heartbeat: the worker's own account of its load. `stats.steps` is not sent.
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
  // kNotNeeded: the first token ended every sample, so that there was nothing to hand over.
  enum class Outcome : uint8_t { kCommitted, kRefused, kFailed, kNotNeeded };
  RequestId id;
  Epoch epoch;
  Outcome outcome = Outcome::kFailed;
  Status status;  // why it was refused or failed
  uint64_t bytes = 0;
  double transfer_ms = 0;
  double gigabytes_per_second = 0;
  std::string transport;
  int32_t reused_blocks = 0;
};

// What one message of a worker carries (worker.proto, ToRouter, after Join).
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
  bool complete = false;  // the request was answered in full, by a stop string for example
};
// One sample's client has all it wants; the others go on.
struct StopSampleCommand {
  RequestId id;
  Epoch epoch;
  int32_t sample = 0;
};
// Hands the KV of a refused hand-off, which prefill keeps under `epoch`, to another dispatch.
struct RedirectCommand {
  RequestId id;
  Epoch epoch;
  SessionId session;
  Epoch decode_epoch;  // of the decode worker's dispatch, and of the session
  Peer peer;
};
struct SnapshotCommand {};
struct DrainWorkerCommand {
  bool keep = false;  // its process
};
// A decode worker that a prefill worker may connect to before it has to.
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

// One token of one sample, in order; or, without token, the end of a sample.
struct OutputToken {
  int32_t sample = 0;
  std::optional<SampledToken> token;
  FinishReason finish = FinishReason::kNone;
};

// Where the time of a request went, for its client and for the metrics.
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

// How a request ended; its last event.
struct Outcome {
  Status status;
  bool retryable = false;
  RequestAccount account;
};

using ClientEvent = std::variant<OutputToken, Outcome>;

}  // namespace baton::router
