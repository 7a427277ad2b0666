#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/core_options.h"
#include "router/routing/pair_book.h"
#include "router/routing/policies/routing_policy.h"
#include "router/types.h"
#include "router/workers/join_check.h"
#include "router/workers/prefix_index.h"
#include "router/workers/worker_book.h"

namespace baton::router {

// Chooses workers for requests and books the requests as load of their workers. Also keeps the
// facts on which a choice depends besides the workers' load and caches: pairs of workers between
// which hand-offs fail, workers that have a suspect request, and learned averages.
// Pure: no I/O, threads or clock. Owned by RouterCore; not thread-safe.
class Placement final {
 public:
  struct Query {
    const RequestSpec& spec;
    const std::vector<TokenId>& resumed;  // output so far
    int32_t samples = 1;
    const std::vector<BootId>& avoid;   // workers to use only when there are no others
    const std::vector<BootId>& unable;  // workers that can never hold the request: not to be used
    bool suspect = false;               // not on a worker with another suspect (RequestMachine)
    bool again = false;                 // the request was dispatched before
    bool alone = false;                 // only a worker that serves alone is chosen
  };

  // The chosen workers of a dispatch, and what they have cached of its prompt and output so far.
  // Refers to the query's spec, which outlives it.
  struct Plan {
    Plan() = default;
    Plan(Plan&&) = default;
    Plan& operator=(Plan&&) = default;

    Assignment where;            // `decode` is a prefill worker for what ends with its prompt
    bool decode_first = false;   // the decode worker takes its blocks first: handoff_order.h
    int32_t prefill_cached = 0;  // leading blocks
    int32_t decode_cached = 0;
    std::span<const Hash128> hashes;  // of all full blocks: the spec's, or `own_hashes`
    std::vector<Hash128> own_hashes;
  };

  // All references outlive the object. `cluster` is set once a worker has joined.
  Placement(const CoreOptions& options,
            const std::optional<ClusterIdentity>& cluster,
            WorkerBook& book,
            PrefixIndex& index);

  // Chooses workers. nullopt when no worker can take the request now. An error when waiting does
  // not help: InvalidArgument when no worker can ever hold the request; when its first token is
  // expected after its deadline, DeadlineExceeded if idle workers would not meet the deadline
  // either, else ResourceExhausted with the length of the queue as RetryAfterOf. A pinned request
  // never waits: the error then says why its workers cannot serve it.
  StatusOr<std::optional<Plan>> Place(const Query& query, Time now);
  // Chooses a decode worker for KV that `prefill` keeps; nullopt when there is none. If
  // `prefill_holds`, the prefill worker may hold blocks of the prompt, so that the decode worker
  // cannot be one that takes its blocks first.
  std::optional<Plan> PlaceDecode(const Query& query,
                                  WorkerSlot prefill,
                                  bool prefill_holds,
                                  Time now);
  // OK when a worker that can decode is ready; else Unavailable with the reason.
  Status Ready(Time now) const;
  // The reason why Place returned nullopt, as text for the client.
  std::string WhyNoPlace(const Query& query, Time now) const {
    return WhyNoPlace(ServerOf(query), query.suspect, now);
  }

  // Books the load of a dispatch on the worker that `plan` has for the request's kind. PromptDone
  // and Release take back the prompt's part of the booking, and all of it.
  void Book(const Plan& plan, const Request& request, Time now);
  void PromptDone(WorkerSlot slot, RequestId id, Epoch epoch) { book_.PromptDone(slot, id, epoch); }
  void Release(WorkerSlot slot, RequestId id, Epoch epoch) { book_.Release(slot, id, epoch); }

  // An empty Peer when no worker has the slot.
  Peer PeerOf(WorkerSlot slot) const;
  bool Has(WorkerSlot slot) const { return book_.Has(slot); }
  SessionId NewSession() { return SessionId(options_.tag | ++sessions_); }

  // The pairs of workers between which hand-offs fail. Place avoids them, and PlaceDecode prefers
  // others.
  PairBook& pairs() { return pairs_; }
  const PairBook& pairs() const { return pairs_; }

  // The workers to which a suspect is dispatched; empty: `id` is not a suspect, or not dispatched.
  // Returns whether the suspect has left a worker.
  bool SetSuspect(RequestId id, std::vector<WorkerSlot> workers);

  // Learns the size and speed of the KV of a prompt of `prompt_tokens` from a committed hand-off.
  void LearnTransfer(const HandoffReport& report, int64_t prompt_tokens);
  // Learns the number of output tokens of a request that ended well.
  void LearnOutput(int32_t tokens) { output_tokens_ = 0.95 * output_tokens_ + 0.05 * tokens; }

 private:
  enum class Role : uint8_t { kPrefill, kDecode };
  // The role of the worker that ends a request: which alone serves a request that ends with its
  // prompt (kPrefill), or decodes.
  static Role ServerOf(const Query& query) {
    return query.spec.ends_with_prompt() ? Role::kPrefill : Role::kDecode;
  }
  static bool Can(Role role, const WorkerInfo& info) {
    return role == Role::kPrefill ? info.can_prefill : info.can_decode;
  }
  bool AnyReady(Role role) const;
  std::string WhyNoPlace(Role role, bool suspect, Time now) const;
  Status CheckPrefill(Time now) const;
  StatusOr<std::optional<Plan>> PlacePinned(const Query& query, Time now);
  StatusOr<WorkerSlot> FindPinned(const WorkerId& id, bool prefill, const Query& query) const;
  Plan LookUp(const Query& query, Time now);
  Plan Chosen(Plan plan, WorkerSlot prefill, WorkerSlot decode) const;
  // False when one of the workers has left, or there is no prefill worker.
  bool DecodeTakesFirst(WorkerSlot prefill, WorkerSlot decode) const;
  RouteQuery RouteOf(const Query& query) const;
  void Gather(const Query& query, std::vector<Candidate>& out, Role role, WorkerSlot except);
  bool DropFailingPair(const Route& chosen, Time now);
  bool CouldHold(const Query& query) const;
  bool HasSuspect(WorkerSlot slot, RequestId except) const;
  Status TooLong(const Query& query) const;

  const CoreOptions& options_;
  const std::optional<ClusterIdentity>& cluster_;
  WorkerBook& book_;
  PrefixIndex& index_;
  const std::unique_ptr<RoutingPolicy> policy_;
  PairBook pairs_;
  std::map<RequestId, std::vector<WorkerSlot>> suspects_;
  uint64_t sessions_ = 0;

  // Work space for the request that is being placed.
  std::vector<int32_t> depth_;  // leading blocks that each worker has cached
  std::vector<Candidate> prefill_;
  std::vector<Candidate> decode_;

  // Learned from hand-offs and finished requests: exponential averages.
  double kv_bytes_per_token_ = 0;
  double transfer_bytes_per_second_ = 0;
  double output_tokens_ = 64;
};

}  // namespace baton::router
