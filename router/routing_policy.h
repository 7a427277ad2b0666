#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "router/types.h"
#include "router/worker_book.h"

namespace baton::router {

enum class PolicyKind : uint8_t {
  kCost,
  kRoundRobin,
  kLeastLoaded,
  kPowerOfTwo,
  kPrefixAffinity,
};

std::string_view Name(PolicyKind kind);

// A worker that could take (part of) a request, as a policy sees it.
struct Candidate {
  WorkerSlot slot;
  const WorkerRecord* worker = nullptr;
  LoadEstimate load;
  int32_t cached_tokens = 0;  // of this prompt; below its length
};

// What is to be placed. Both lists are in the order of worker ids; `decode` is never empty.
struct RouteQuery {
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;  // of output, still to come
  int32_t samples = 1;
  int32_t local_tokens = 0;                  // a decode worker may compute this much of a prompt
  double kv_bytes_per_token = 0;             // learned from hand-offs; 0: not known yet
  double transfer_gigabytes_per_second = 0;  // 10⁹ bytes a second, learned; 0: not known yet
  double expected_output = 0;                // tokens a request generates, learned
  std::span<const Candidate> prefill;
  std::span<const Candidate> decode;
};

// Where a request goes. `prefill` is null when the decode worker serves it alone.
struct Route {
  const Candidate* prefill = nullptr;
  const Candidate* decode = nullptr;
  double ttft_ms = 0;  // predicted; 0 where the workers' speed is unknown
};

// Chooses workers. A policy may keep state (a turn, a random generator from a named seed); it knows
// no clock. Owned by RouterCore; not thread-safe. Never fails: the lists hold only workers that can
// do it.
class RoutingPolicy {
 public:
  virtual ~RoutingPolicy() = default;
  virtual Route Select(const RouteQuery& query) = 0;
};

// `seed` makes the choices among equals repeatable.
std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(PolicyKind kind, uint64_t seed);

}  // namespace baton::router
