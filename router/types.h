#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/cluster/commands.h"
#include "common/cluster/reports.h"
#include "common/cluster/request.h"
#include "common/cluster/worker_info.h"

// The vocabulary of the router's decisions: plain values without gRPC types, so that the decisions
// also run in simulation.
namespace baton::router {

// The index of a worker in this router's tables. A slot is reused after its worker has left.
using WorkerSlot = StrongId<struct WorkerSlotTag, uint16_t>;
constexpr WorkerSlot kNoWorker{0xffff};
constexpr int kMaxWorkers = 128;

// The workers that a request must run on. It ends with an error when they cannot serve it, and is
// not dispatched again after a failure.
struct PinnedWorkers {
  WorkerId prefill;  // empty: the decode worker serves alone
  WorkerId decode;
};

// One user request, tokenised and checked; shared and immutable.
struct RequestSpec : RequestOptions {
  RequestId id;
  TokenList prompt;
  std::vector<Hash128> hashes;  // of the prompt's full blocks
  int32_t samples = 1;
  std::optional<PinnedWorkers> pinned;  // nullopt: the policy chooses
  bool replay = false;                  // made by Replays: no client waits for it
  bool own_deadline = false;            // `deadline` is the client's, not the router's default
};

// The workers of one attempt at a request.
struct Assignment {
  WorkerSlot prefill = kNoWorker;  // kNoWorker: the decode worker serves alone
  WorkerSlot decode = kNoWorker;
};

// A range of a request's samples: [first, first + count).
struct SampleRange {
  int32_t first = 0;
  int32_t count = 1;

  int32_t end() const { return first + count; }
  bool contains(int32_t sample) const { return sample >= first && sample < end(); }
};

// ---- router → client

// One token of one sample, in order. Without a token: the end of the sample.
struct OutputToken {
  int32_t sample = 0;
  std::optional<SampledToken> token;
  FinishReason finish = FinishReason::kNone;
  int32_t cached_tokens = 0;  // with the first token of a request: RequestAccount::cached_tokens
  std::vector<SampledToken> prompt = {};  // as in TokenOutput
  std::vector<float> pooled = {};         // as in TokenOutput
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
  bool own_deadline = false;  // RequestSpec::own_deadline
};

using ClientEvent = std::variant<OutputToken, Outcome>;

}  // namespace baton::router
