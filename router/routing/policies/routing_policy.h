#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "router/types.h"
#include "router/workers/worker_book.h"

namespace baton::router {

enum class PolicyKind : uint8_t {
  kCost,
  kRoundRobin,
  kLeastLoaded,
  kPowerOfTwo,
  kPrefixAffinity,
};

std::string_view Name(PolicyKind kind);

// A worker that could serve a request, or its prefill or decode part: the input of a policy.
struct Candidate {
  WorkerSlot slot;
  const WorkerRecord* worker = nullptr;
  LoadEstimate load;
  int32_t cached_tokens = 0;  // tokens of this prompt in the prefix cache; below its length
};

// The request to place and the workers that can serve it. Both lists are sorted by worker id;
// `decode` is never empty.
struct RouteQuery {
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  // output tokens that may still be generated
  int32_t samples = 1;
  int32_t local_tokens = 0;              // uncached tokens a decode worker may serve alone
  double kv_bytes_per_token = 0;         // learned from hand-offs; 0: not known yet
  double transfer_bytes_per_second = 0;  // learned; 0: not known yet
  double expected_output = 0;            // learned average of output tokens per request
  std::span<const Candidate> prefill;
  std::span<const Candidate> decode;
};

// The chosen workers. `prefill` is null when the decode worker serves the request alone.
struct Route {
  const Candidate* prefill = nullptr;
  const Candidate* decode = nullptr;
  double ttft_ms = 0;  // predicted; 0 while the workers' speed is unknown
};

// Chooses workers. A policy may keep state (a round-robin position, a seeded random generator) but
// does not read a clock. Owned by RouterCore; not thread-safe. Select never fails, because the
// lists contain only workers that can serve the request.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual Route Select(const RouteQuery& query) = 0;
};

// `seed` makes the choices among equals repeatable.
std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(PolicyKind kind, uint64_t seed);

}  // namespace baton::router
