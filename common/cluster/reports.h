#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/cluster/load.h"
#include "common/cluster/request.h"
#include "common/kvcache/cache_event.h"

// What a worker reports to its routers (proto/worker.proto, ToRouter).
namespace baton {

// A request that produced all its tokens.
struct FinishedReport {
  RequestId id;
  Epoch epoch;
  RequestTimes times;

  bool operator==(const FinishedReport&) const = default;
};

struct FailedReport {
  RequestId id;
  Epoch epoch;
  Status status;
  bool retryable = false;  // another worker may succeed

  bool operator==(const FailedReport&) const = default;
};

// Whether another worker may succeed where this one failed with `status`.
bool IsRetryable(const Status& status);

// How a hand-off went. Both workers report; the router acts on refusals and failures.
struct HandoffReport {
  enum class Outcome : uint8_t {
    kCommitted,  // decode: the KV is there; prefill: with the time and the rate that it measured
    kRefused,    // prefill: decode refused; prefill keeps the KV and waits for RedirectCommand
    kFailed,     // either side; the last report of a request that had not ended there
    kNotNeeded,  // either side: the first token ended every sample, so that no KV had to move
  };
  RequestId id;
  Epoch epoch;
  Outcome outcome = Outcome::kFailed;
  Status status;  // why the hand-off was refused or failed
  uint64_t bytes = 0;
  Duration transfer{};          // last chunk ready → committed
  double bytes_per_second = 0;  // 0 where only the other side knows
  std::string transport;
  int32_t reused_blocks = 0;  // that the decode worker had cached

  bool operator==(const HandoffReport&) const = default;
};

// One message of a worker, after Join.
struct WorkerReport {
  std::optional<WorkerLoad> load;
  std::vector<TokenOutput> tokens;
  std::vector<HandoffReport> handoffs;
  std::vector<FinishedReport> finished;
  std::vector<FailedReport> failed;
  std::vector<CacheEvent> cache_events;
  bool drain = false;  // the worker takes no new requests, and leaves when its last one ends

  bool operator==(const WorkerReport&) const = default;
};

}  // namespace baton
