#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/clock.h"
#include "router/routing/policies/routing_policy.h"
#include "router/workers/join_check.h"

namespace baton::router {

struct RetryLimits {
  // Failed dispatches after which a request ends. Dispatches that are lost with a worker, or with
  // the link to a worker, do not count.
  int32_t max_attempts = 4;
  // Worker processes lost in a row, each with this request, after which it ends; zero: no limit.
  int32_t max_worker_losses = 5;
  Duration loss_pause = std::chrono::seconds(5);  // after each loss of a suspect's worker
  Duration worker_wait{};  // wait for a worker that can take a request; zero: until the deadline
  Duration first_backoff = std::chrono::milliseconds(20);
  Duration max_backoff = std::chrono::milliseconds(500);
  Duration account_wait = std::chrono::milliseconds(50);  // wait for the workers' final reports
};

// Replays of finished requests (class Replays).
struct ReplayOptions {
  double sample = 0;            // the fraction of finished requests that is replayed
  int32_t max_running = 1;      // replays at once
  int32_t max_waiting = 16;     // finished requests that wait for their replay
  int64_t max_tokens = 262144;  // of prompts and outputs that are kept for replays
};

// The options of RouterCore and its parts.
struct CoreOptions {
  uint64_t tag = 0;  // the upper 24 bits of all ids that this router creates
  uint64_t hash_secret = 0;
  OwnModel model;
  int32_t max_requests = 4096;
  int32_t local_tokens = 0;
  size_t index_capacity = 1 << 20;
  Duration suspect_after = std::chrono::milliseconds(1500);
  Duration lost_after = std::chrono::milliseconds(3000);
  RetryLimits retry;
  ReplayOptions replay;
  PolicyKind policy = PolicyKind::kCost;
  uint64_t seed = 1;
};

}  // namespace baton::router
