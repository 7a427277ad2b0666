// The part of RouterCore that chooses workers for a request.
#include <algorithm>

#include "common/kvcache/block_hash.h"
#include "router/request_error.h"
#include "router/router_core.h"
#include "router/worker_cost.h"

namespace baton::router {
namespace {

// A dispatched prompt counts as cached for this long without a cache event of the worker.
constexpr Duration kExpectation = std::chrono::seconds(10);

// How long other pairs of workers are preferred to a pair that seems out of reach.
constexpr Duration kOutOfReachFor = std::chrono::seconds(10);

int64_t BlocksOf(int64_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / std::max(1, block_tokens);
}

bool Contains(const std::vector<BootId>& boots, BootId boot) {
  return std::find(boots.begin(), boots.end(), boot) != boots.end();
}

int64_t TokensOf(const RequestHost::PlaceQuery& query) {
  return static_cast<int64_t>(query.spec.prompt.size() + query.resumed.size());
}

}  // namespace

Status RouterCore::Ready() const {
  bool can_decode = false;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    can_decode |= worker.state == WorkerState::kReady && worker.info.can_decode;
  }
  return can_decode ? OkStatus() : Status(StatusCode::kUnavailable, WhyNoPlace(false));
}

std::string RouterCore::WhyNoPlace(bool suspect) const {
  if (book_.slots().empty()) return "no worker has joined this router";
  int states[4] = {};
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    if (worker.info.can_decode) ++states[static_cast<int>(worker.state)];
  }
  if (states[0] > 0 && suspect) {
    return fmt::format(
        "workers were lost or steps failed with this request, and it waits for a worker without "
        "another such request; decode workers: {} ready, {} suspect, {} lost, {} draining",
        states[0],
        states[1],
        states[2],
        states[3]);
  }
  if (states[0] > 0) {
    return fmt::format(
        "no ready decode worker can hold the request in its KV memory: {} ready, {} suspect, {} "
        "lost, {} draining",
        states[0],
        states[1],
        states[2],
        states[3]);
  }
  return fmt::format(
      "no decode worker can take requests: {} ready, {} suspect, {} lost, {} draining",
      states[0],
      states[1],
      states[2],
      states[3]);
}

DecodeArenas RouterCore::decode_arenas() const {
  DecodeArenas arenas;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerInfo& info = book_.record(slot).info;
    if (!info.can_decode) continue;
    arenas.block_tokens = std::max(1, info.block_tokens);  // CheckFit: the same for all workers
    arenas.blocks.push_back(info.blocks);
  }
  return arenas;
}

bool RouterCore::Fits(const WorkerInfo& info, int64_t tokens) const {
  return BlocksOf(tokens + 1, info.block_tokens) <= info.blocks;
}

// Collects the candidates of one role, sorted by worker id. Workers in query.avoid are included
// only when there are no others.
void RouterCore::Gather(const PlaceQuery& query,
                        std::vector<Candidate>& out,
                        bool prefill,
                        WorkerSlot except) {
  const int64_t tokens = TokensOf(query);
  bool busy = false;
  for (const bool also_avoided : {false, true}) {
    out.clear();
    for (const WorkerSlot slot : book_.slots()) {
      const WorkerRecord& worker = book_.record(slot);
      const bool able = prefill ? worker.info.can_prefill : worker.info.can_decode;
      if (!able || worker.state != WorkerState::kReady || slot == except) continue;
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
  std::sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
    return a.worker->info.id < b.worker->info.id;
  });
}

// Finds out which workers have cached the prompt and the output so far (sets depth_ and hashes_).
RouteQuery RouterCore::LookUp(const PlaceQuery& query) {
  const RequestSpec& spec = query.spec;
  const bool hashed = query.resumed.empty() && !spec.hashes.empty();
  if (hashed || !identity_.has_value()) {
    hashes_ = spec.hashes;
  } else {
    own_hashes_ = BlockHashes(spec.prompt.Plus(query.resumed),
                              identity_->block_tokens,
                              {options_.hash_secret, identity_->fingerprint, spec.cache_salt});
    hashes_ = own_hashes_;
  }
  index_.Match(hashes_, now_, depth_);

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

StatusOr<std::optional<RequestHost::Assignment>> RouterCore::Place(const PlaceQuery& query) {
  RouteQuery route = LookUp(query);
  Gather(query, decode_, false, kNoWorker);
  if (decode_.empty()) {
    if (!Ready().ok() || CouldHold(query)) return std::optional<Assignment>();
    return TooLong(query);
  }
  Gather(query, prefill_, true, kNoWorker);
  Route chosen;
  do {
    route.decode = decode_;
    route.prefill = prefill_;
    chosen = policy_->Select(route);
  } while (DropOutOfReach(chosen));
  const RequestSpec& spec = query.spec;
  // Only new requests are refused. For a request that was admitted and lost its worker, a late
  // answer is better than none.
  if (!query.again && spec.deadline != kNever && chosen.ttft_ms > ToMillis(spec.deadline - now_)) {
    return MakeStatus(
        StatusCode::kResourceExhausted,
        "the first token is expected in {:.0f} ms, but the request has {:.0f} ms left",
        chosen.ttft_ms,
        ToMillis(spec.deadline - now_));
  }
  const WorkerSlot prefill = chosen.prefill == nullptr ? kNoWorker : chosen.prefill->slot;
  return std::optional<Assignment>({prefill, chosen.decode->slot});
}

void RouterCore::NoteOutOfReach(WorkerSlot prefill, WorkerSlot decode) {
  out_of_reach_until_[{prefill, decode}] = now_ + kOutOfReachFor;
}

bool RouterCore::OutOfReach(WorkerSlot prefill, WorkerSlot decode) const {
  const auto found = out_of_reach_until_.find({prefill, decode});
  return found != out_of_reach_until_.end() && now_ < found->second;
}

// When the chosen pair is out of reach and another pair is possible, drops one of the two workers
// from the candidates: the prefill worker if it reaches no candidate, else the decode worker. False
// when the choice stands.
bool RouterCore::DropOutOfReach(const Route& chosen) {
  if (chosen.prefill == nullptr) return false;
  const WorkerSlot prefill = chosen.prefill->slot;
  const WorkerSlot decode = chosen.decode->slot;
  if (!OutOfReach(prefill, decode)) return false;
  const bool reaches_another = std::ranges::any_of(
      decode_, [&](const Candidate& other) { return !OutOfReach(prefill, other.slot); });
  if (!reaches_another && prefill_.size() == 1) return false;
  std::erase_if(reaches_another ? decode_ : prefill_, [&](const Candidate& candidate) {
    return candidate.slot == (reaches_another ? decode : prefill);
  });
  return true;
}

bool RouterCore::HasSuspect(WorkerSlot slot, RequestId except) const {
  return std::ranges::any_of(placed_suspects_, [&](RequestId id) {
    if (id == except) return false;
    const RequestMachine& machine = *live_.at(id).machine;
    return machine.suspect() && machine.Uses(slot);
  });
}

// Whether a joined worker, ready or not, could hold the request. A silent worker may send again,
// and a draining one may be about to restart.
bool RouterCore::CouldHold(const PlaceQuery& query) const {
  return std::ranges::any_of(book_.slots(), [&](WorkerSlot slot) {
    const WorkerInfo& info = book_.record(slot).info;
    return info.can_decode && Fits(info, TokensOf(query)) && !Contains(query.unable, info.boot);
  });
}

Status RouterCore::TooLong(const PlaceQuery& query) const {
  int64_t most = 0;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerInfo& info = book_.record(slot).info;
    if (info.can_decode) most = std::max(most, int64_t{info.blocks} * info.block_tokens);
  }
  const Status too_long = InvalidArgument(
      "{} of {} tokens does not fit into the KV memory of any worker: the largest holds {} tokens, "
      "of which one must be left for the answer",
      query.resumed.empty() ? "the prompt" : "the prompt with the answer so far",
      TokensOf(query),
      most);
  return WithReason(too_long, reason::kContextLengthExceeded);
}

WorkerSlot RouterCore::PlaceDecode(const PlaceQuery& query, WorkerSlot prefill) {
  RouteQuery route = LookUp(query);
  Gather(query, decode_, false, prefill);
  if (decode_.empty()) return kNoWorker;
  const auto out_of_reach = [&](const Candidate& candidate) {
    return OutOfReach(prefill, candidate.slot);
  };
  if (!std::ranges::all_of(decode_, out_of_reach)) std::erase_if(decode_, out_of_reach);
  route.decode = decode_;
  return policy_->Select(route).decode->slot;
}

void RouterCore::BookDispatch(WorkerSlot slot, const DispatchCommand& dispatch) {
  const Request& request = dispatch.request;
  const WorkerInfo& info = book_.record(slot).info;
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t cached_blocks = depth_[slot.value()];
  WorkerBook::Booking booking;
  booking.blocks = static_cast<int32_t>(BlocksOf(tokens + 1, info.block_tokens) - cached_blocks);
  if (request.kind != RequestKind::kDecode) {
    booking.prompt_tokens = tokens - std::min(cached_blocks * info.block_tokens, tokens - 1);
  }
  book_.Book(slot, request.id, request.epoch, booking, now_);
  index_.Expect(slot, hashes_, now_ + kExpectation);
}

}  // namespace baton::router
