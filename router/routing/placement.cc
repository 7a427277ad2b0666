#include "router/routing/placement.h"

#include <algorithm>

#include "common/base/retry_after.h"
#include "common/cluster/handoff_order.h"
#include "common/kvcache/block_hash.h"
#include "common/kvcache/layout.h"
#include "router/request_error.h"
#include "router/routing/policies/worker_cost.h"

namespace baton::router {
namespace {

// A dispatched prompt counts as cached for this long without a cache event of the worker.
constexpr Duration kExpectation = std::chrono::seconds(10);

// The longest time to wait that is told to a client whose deadline is too short.
constexpr double kMaxRetrySeconds = 3600;

int64_t BlocksOf(int64_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / std::max(1, block_tokens);
}

bool Contains(const std::vector<BootId>& boots, BootId boot) {
  return !boots.empty() && std::ranges::find(boots, boot) != boots.end();
}

int64_t TokensOf(const Placement::Query& query) {
  return static_cast<int64_t>(query.spec.prompt.size() + query.resumed.size());
}

bool Fits(const WorkerInfo& info, int64_t tokens) {
  return BlocksOf(tokens + 1, info.block_tokens) <= info.blocks;
}

// ": worker decode-0 was lost 2.5 s ago, worker decode-1 …"; empty when none of them has left.
std::string Describe(const std::vector<Departure>& departures, bool only_decode, Time now) {
  std::string text;
  for (const Departure& gone : departures) {
    if (only_decode && !gone.can_decode) continue;
    text += fmt::format("{}worker {} {} {:.1f} s ago",
                        text.empty() ? ": " : ", ",
                        gone.id,
                        gone.drained ? "left after its drain" : "was lost",
                        ToSeconds(now - gone.at));
  }
  return text;
}

// Refuses a request whose first token is expected after `ttft_ms`, and its deadline before that.
Status CheckDeadline(const RouteQuery& route, double ttft_ms, double left_ms) {
  if (ttft_ms <= left_ms) return OkStatus();
  const double prompt_ms = std::min(IdlePromptMs(route), ttft_ms);
  const double queue_ms = ttft_ms - prompt_ms;
  const std::string parts = fmt::format(
      "the first token is expected in {:.0f} ms ({:.0f} ms in the queue, {:.0f} ms to compute the "
      "prompt), but the request has {:.0f} ms left",
      ttft_ms,
      queue_ms,
      prompt_ms,
      left_ms);
  if (prompt_ms > left_ms) {
    return MakeStatus(StatusCode::kDeadlineExceeded,
                      "{}: an idle cluster would not meet this deadline either",
                      parts);
  }
  return WithRetryAfter(Status(StatusCode::kResourceExhausted, parts),
                        FromSeconds(std::min(queue_ms / 1000, kMaxRetrySeconds)));
}

}  // namespace

Placement::Placement(const CoreOptions& options,
                     const std::optional<ClusterIdentity>& cluster,
                     WorkerBook& book,
                     PrefixIndex& index)
    : options_(options),
      cluster_(cluster),
      book_(book),
      index_(index),
      policy_(MakeRoutingPolicy(options.policy, options.seed)) {}

Status Placement::Ready(Time now) const {
  if (AnyReady(Role::kDecode)) return OkStatus();
  return Status(StatusCode::kUnavailable, WhyNoPlace(Role::kDecode, false, now));
}

bool Placement::AnyReady(Role role) const {
  return std::ranges::any_of(book_.slots(), [&](WorkerSlot slot) {
    const WorkerRecord& worker = book_.record(slot);
    return worker.state == WorkerState::kReady && Can(role, worker.info);
  });
}

// Does not wait for a prefill worker where none is left: clusters without any serve generations.
Status Placement::CheckPrefill(Time now) const {
  const auto can = [&](WorkerSlot slot) {
    const WorkerRecord& worker = book_.record(slot);
    return Can(Role::kPrefill, worker.info) && worker.state != WorkerState::kLost;
  };
  if (book_.slots().empty() || std::ranges::any_of(book_.slots(), can)) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "embeddings and scores are computed by prefill workers, and this router has "
                    "none{}",
                    Describe(book_.departures(), false, now));
}

std::string Placement::WhyNoPlace(Role role, bool suspect, Time now) const {
  const char* const name = role == Role::kPrefill ? "prefill" : "decode";
  const std::vector<Departure>& departures = book_.departures();
  if (book_.slots().empty()) {
    if (departures.empty()) return "no worker has joined this router";
    return fmt::format("all workers have left this router{}", Describe(departures, false, now));
  }
  int states[4] = {};
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    if (Can(role, worker.info)) ++states[static_cast<int>(worker.state)];
  }
  if (states[0] > 0 && suspect) {
    return fmt::format(
        "workers were lost or steps failed with this request, and it waits for a worker without "
        "another such request; {} workers: {} ready, {} suspect, {} lost, {} draining",
        name,
        states[0],
        states[1],
        states[2],
        states[3]);
  }
  if (states[0] > 0) {
    return fmt::format(
        "no ready {} worker can hold the request in its KV memory: {} ready, {} suspect, {} "
        "lost, {} draining",
        name,
        states[0],
        states[1],
        states[2],
        states[3]);
  }
  return fmt::format("no {} worker can take requests: {} ready, {} suspect, {} lost, {} draining{}",
                     name,
                     states[0],
                     states[1],
                     states[2],
                     states[3],
                     Describe(departures, role == Role::kDecode, now));
}

// Collects the candidates of one role, sorted by worker id. Workers in query.avoid are included
// only when there are no others.
void Placement::Gather(const Query& query,
                       std::vector<Candidate>& out,
                       Role role,
                       WorkerSlot except) {
  const int64_t tokens = TokensOf(query);
  bool busy = false;
  for (const bool also_avoided : {false, true}) {
    out.clear();
    for (const WorkerSlot slot : book_.slots()) {
      const WorkerRecord& worker = book_.record(slot);
      if (!Can(role, worker.info) || worker.state != WorkerState::kReady || slot == except)
        continue;
      if (!Fits(worker.info, tokens) || Contains(query.unable, worker.info.boot)) continue;
      if (!also_avoided && Contains(query.avoid, worker.info.boot)) continue;
      if (query.suspect && HasSuspect(slot, query.spec.id)) {
        busy = true;
        continue;
      }
      const int64_t cached = int64_t{depth_[slot.value()]} * worker.info.block_tokens;
      out.push_back({slot,
                     &worker,
                     book_.Estimate(slot),
                     static_cast<int32_t>(std::min(cached, tokens - 1))});
    }
    // Waiting for a worker that now has another suspect is better than a worker in query.avoid.
    if (!out.empty() || busy) break;
  }
}

// Finds out which workers have cached the prompt and the output so far (sets depth_). The plan has
// no workers yet.
Placement::Plan Placement::LookUp(const Query& query, Time now) {
  const RequestSpec& spec = query.spec;
  const bool hashed = query.resumed.empty() && !spec.hashes.empty();
  Plan plan;
  if (hashed || !cluster_.has_value()) {
    plan.hashes = spec.hashes;
  } else {
    plan.own_hashes = BlockHashes(spec.prompt.Plus(query.resumed),
                                  cluster_->block_tokens,
                                  {options_.hash_secret, cluster_->fingerprint, spec.cache_salt});
    plan.hashes = plan.own_hashes;
  }
  index_.Match(plan.hashes, now, depth_);
  if (cluster_.has_value() && !cluster_->window.reads_all()) {
    index_.CutToWindows(plan.hashes, cluster_->block_tokens, cluster_->window, now, depth_);
  }
  return plan;
}

Placement::Plan Placement::Chosen(Plan plan, WorkerSlot prefill, WorkerSlot decode) const {
  plan.where = {prefill, decode};
  plan.decode_first = DecodeTakesFirst(prefill, decode);
  if (prefill != kNoWorker) plan.prefill_cached = depth_[prefill.value()];
  plan.decode_cached = depth_[decode.value()];
  return plan;
}

RouteQuery Placement::RouteOf(const Query& query) const {
  const RequestSpec& spec = query.spec;
  RouteQuery route;
  route.prompt_tokens = static_cast<int32_t>(spec.prompt.size() + query.resumed.size());
  route.max_tokens = spec.max_tokens - static_cast<int32_t>(query.resumed.size());
  route.samples = query.samples;
  route.local_tokens = options_.local_tokens;
  route.kv_bytes_per_token = kv_bytes_per_token_;
  route.transfer_bytes_per_second = transfer_bytes_per_second_;
  route.expected_output = output_tokens_;
  return route;
}

StatusOr<WorkerSlot> Placement::FindPinned(const WorkerId& id,
                                           bool prefill,
                                           const Query& query) const {
  const char* const role = prefill ? "prefill" : "decode";
  const WorkerSlot slot = book_.Find(id);
  if (slot == kNoWorker) {
    return MakeStatus(StatusCode::kNotFound,
                      "no worker named {} has joined this router; `baton status` lists the workers",
                      Shown(id.value()));
  }
  const WorkerRecord& worker = book_.record(slot);
  if (prefill ? !worker.info.can_prefill : !worker.info.can_decode) {
    return InvalidArgument(
        "worker {} is not a {} worker; `baton status` shows each worker's roles", id, role);
  }
  if (worker.state != WorkerState::kReady) {
    return MakeStatus(
        StatusCode::kUnavailable, "worker {} is {}, not ready", id, Name(worker.state));
  }
  if (!Fits(worker.info, TokensOf(query))) {
    return InvalidArgument("the KV memory of worker {} holds {} tokens; the request needs {}",
                           id,
                           int64_t{worker.info.blocks} * worker.info.block_tokens,
                           TokensOf(query) + 1);
  }
  return slot;
}

StatusOr<std::optional<Placement::Plan>> Placement::PlacePinned(const Query& query, Time now) {
  const PinnedWorkers& pinned = *query.spec.pinned;
  if (query.again) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the request failed on its workers ({}, {}), and is not tried on others",
                      pinned.prefill,
                      pinned.decode);
  }
  Plan plan = LookUp(query, now);
  BATON_ASSIGN_OR_RETURN(const WorkerSlot decode, FindPinned(pinned.decode, false, query));
  if (pinned.prefill == WorkerId()) return Chosen(std::move(plan), kNoWorker, decode);
  if (pinned.prefill == pinned.decode) {
    return InvalidArgument(
        "worker {} is named for both parts; name two workers, or only a decode worker, which then "
        "serves alone",
        pinned.decode);
  }
  BATON_ASSIGN_OR_RETURN(const WorkerSlot prefill, FindPinned(pinned.prefill, true, query));
  return Chosen(std::move(plan), prefill, decode);
}

StatusOr<std::optional<Placement::Plan>> Placement::Place(const Query& query, Time now) {
  if (query.spec.pinned.has_value()) return PlacePinned(query, now);
  Plan plan = LookUp(query, now);
  RouteQuery route = RouteOf(query);
  const Role role = ServerOf(query);
  Gather(query, decode_, role, kNoWorker);
  if (decode_.empty()) {
    if (role == Role::kPrefill) BATON_RETURN_IF_ERROR(CheckPrefill(now));
    if (!AnyReady(role) || CouldHold(query)) return std::optional<Plan>();
    return TooLong(query);
  }
  prefill_.clear();
  if (!query.alone) Gather(query, prefill_, Role::kPrefill, kNoWorker);
  Route chosen;
  do {
    route.decode = decode_;
    route.prefill = prefill_;
    chosen = policy_->Select(route);
  } while (DropFailingPair(chosen, now));
  const RequestSpec& spec = query.spec;
  // Only new requests are refused. For a request that was admitted and lost its worker, a late
  // answer is better than none.
  if (!query.again && spec.deadline != kNever) {
    BATON_RETURN_IF_ERROR(CheckDeadline(route, chosen.ttft_ms, ToMillis(spec.deadline - now)));
  }
  const WorkerSlot prefill = chosen.prefill == nullptr ? kNoWorker : chosen.prefill->slot;
  return Chosen(std::move(plan), prefill, chosen.decode->slot);
}

// When the chosen pair is to be avoided and there is a better way, drops one of the two workers
// from the candidates: the prefill worker if all of its pairs are to be avoided, else the decode
// worker. The last prefill worker is dropped only when the pair is broken; then a decode worker
// serves alone. False when the choice stands.
bool Placement::DropFailingPair(const Route& chosen, Time now) {
  if (chosen.prefill == nullptr) return false;
  const WorkerSlot prefill = chosen.prefill->slot;
  const WorkerSlot decode = chosen.decode->slot;
  if (!pairs_.Avoided(prefill, decode, now)) return false;
  const bool reaches_another = std::ranges::any_of(
      decode_, [&](const Candidate& other) { return !pairs_.Avoided(prefill, other.slot, now); });
  const bool last = !reaches_another && prefill_.size() == 1;
  if (last && !pairs_.Broken(prefill, decode, now)) return false;
  std::erase_if(reaches_another ? decode_ : prefill_, [&](const Candidate& candidate) {
    return candidate.slot == (reaches_another ? decode : prefill);
  });
  return true;
}

bool Placement::HasSuspect(WorkerSlot slot, RequestId except) const {
  return std::ranges::any_of(suspects_, [&](const auto& suspect) {
    const auto& [id, workers] = suspect;
    return id != except && std::ranges::count(workers, slot) > 0;
  });
}

// Whether a joined worker, ready or not, could hold the request. A silent worker may send again,
// and a draining one may be about to restart.
bool Placement::CouldHold(const Query& query) const {
  return std::ranges::any_of(book_.slots(), [&](WorkerSlot slot) {
    const WorkerInfo& info = book_.record(slot).info;
    return Can(ServerOf(query), info) && Fits(info, TokensOf(query)) &&
           !Contains(query.unable, info.boot);
  });
}

Status Placement::TooLong(const Query& query) const {
  int64_t most = 0;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerInfo& info = book_.record(slot).info;
    if (Can(ServerOf(query), info)) most = std::max(most, int64_t{info.blocks} * info.block_tokens);
  }
  const Status too_long = InvalidArgument(
      "{} of {} tokens does not fit into the KV memory of any worker: the largest holds {} tokens, "
      "and one token must be left for the answer",
      query.resumed.empty() ? "the prompt" : "the prompt with the answer so far",
      TokensOf(query),
      most);
  return WithReason(too_long, reason::kContextLengthExceeded);
}

bool Placement::DecodeTakesFirst(WorkerSlot prefill, WorkerSlot decode) const {
  if (!book_.Has(prefill) || !book_.Has(decode)) return false;
  return baton::DecodeTakesFirst(book_.record(prefill).info, book_.record(decode).info);
}

std::optional<Placement::Plan> Placement::PlaceDecode(const Query& query,
                                                      WorkerSlot prefill,
                                                      bool prefill_holds,
                                                      Time now) {
  Plan plan = LookUp(query, now);
  RouteQuery route = RouteOf(query);
  Gather(query, decode_, Role::kDecode, prefill);
  if (prefill_holds) {
    std::erase_if(decode_, [&](const Candidate& candidate) {
      return DecodeTakesFirst(prefill, candidate.slot);
    });
  }
  if (decode_.empty()) return std::nullopt;
  const auto avoided = [&](const Candidate& candidate) {
    return pairs_.Avoided(prefill, candidate.slot, now);
  };
  if (!std::ranges::all_of(decode_, avoided)) std::erase_if(decode_, avoided);
  route.decode = decode_;
  return Chosen(std::move(plan), prefill, policy_->Select(route).decode->slot);
}

void Placement::Book(const Plan& plan, const Request& request, Time now) {
  const bool prefill = request.kind == RequestKind::kPrefill;
  const WorkerSlot slot = prefill ? plan.where.prefill : plan.where.decode;
  if (!book_.Has(slot)) return;
  const WorkerInfo& info = book_.record(slot).info;
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t cached_blocks = prefill ? plan.prefill_cached : plan.decode_cached;
  WorkerBook::Booking booking;
  booking.blocks = static_cast<int32_t>(BlocksOf(tokens + 1, info.block_tokens) - cached_blocks);
  if (request.kind != RequestKind::kDecode) {
    booking.prompt_tokens = tokens - std::min(cached_blocks * info.block_tokens, tokens - 1);
  }
  book_.Book(slot, request.id, request.epoch, booking, now);
  index_.Expect(slot, plan.hashes, now + kExpectation);
  if (info.window.reads_all()) return;
  // A hand-off brings only the windows that the next token reads.
  const bool received = request.kind == RequestKind::kDecode;
  const int32_t first = received ? FirstBlockKept(tokens, info.window, info.block_tokens) : 0;
  std::vector<Hash128> windows;
  for (size_t i = static_cast<size_t>(first); i < plan.hashes.size(); ++i) {
    windows.push_back(WindowHash(plan.hashes[i]));
  }
  index_.Expect(slot, windows, now + kExpectation);
}

Peer Placement::PeerOf(WorkerSlot slot) const {
  if (!book_.Has(slot)) return {};
  const WorkerInfo& info = book_.record(slot).info;
  return {info.id, info.boot, info.kv_address};
}

bool Placement::SetSuspect(RequestId id, std::vector<WorkerSlot> workers) {
  const auto known = suspects_.find(id);
  const bool left =
      known != suspects_.end() && std::ranges::any_of(known->second, [&](WorkerSlot slot) {
        return std::ranges::count(workers, slot) == 0;
      });
  if (workers.empty()) {
    suspects_.erase(id);
  } else {
    suspects_[id] = std::move(workers);
  }
  return left;
}

void Placement::LearnTransfer(const HandoffReport& report, int64_t prompt_tokens) {
  // Only the sender reports the speed.
  const bool useful = report.outcome == HandoffReport::Outcome::kCommitted && report.bytes > 0 &&
                      report.bytes_per_second > 0;
  if (!useful || !cluster_.has_value()) return;
  const int64_t block_tokens = std::max(1, cluster_->block_tokens);
  const int64_t tokens = prompt_tokens - report.reused_blocks * block_tokens;
  const auto blend = [](double& average, double value) {
    average = average == 0 ? value : 0.9 * average + 0.1 * value;
  };
  if (tokens >= block_tokens) {
    blend(kv_bytes_per_token_, static_cast<double>(report.bytes) / static_cast<double>(tokens));
  }
  blend(transfer_bytes_per_second_, report.bytes_per_second);
}

}  // namespace baton::router
