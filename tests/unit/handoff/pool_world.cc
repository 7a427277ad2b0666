#include "tests/unit/handoff/pool_world.h"

#include <algorithm>

#include "common/cluster/handoff_order.h"
#include "tests/unit/handoff/pool_worker.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr Duration kStuck = std::chrono::seconds(5);
constexpr Duration kSlice = milliseconds(100);
// Before a refused hand-off is offered again; doubles with each refusal.
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = milliseconds(500);

}  // namespace

PoolWorld::PoolWorld(uint64_t seed, const PoolOptions& options)
    : options_(options), events_(seed), transfer_(events_, {}, *this) {
  for (size_t i = 0; i < options_.workers.size(); ++i) {
    WorkerInfo info;
    info.id = WorkerId(std::to_string(i));
    info.can_prefill = options_.workers[i] != 'd';
    info.can_decode = options_.workers[i] != 'p';
    workers_.push_back(std::make_unique<PoolWorker>(i, info, options_, events_, transfer_, *this));
  }
}

PoolWorld::~PoolWorld() = default;

void PoolWorld::Add(Duration delay, int32_t prompt, int32_t output, int32_t priority) {
  const RequestId id(clients_.size() + 1);
  Client& client = clients_[id];
  client.prompt = prompt;
  client.output = output;
  client.priority = priority;
  events_.At(delay, [this, id] {
    clients_.at(id).arrival = events_.now();
    Send(id);
  });
}

void PoolWorld::Run(Duration most) {
  last_progress_ = events_.now();
  Watch();
  for (const Time end = events_.now() + most; events_.now() < end && served_ < clients_.size();) {
    if (!violation().empty()) return;
    events_.RunUntil(events_.now() + kSlice);
  }
  if (served_ < clients_.size()) {
    events_.Violate(fmt::format("{} of {} requests were answered", served_, clients_.size()));
  }
}

// No request may wait while nothing runs anywhere.
void PoolWorld::Watch() {
  const bool waits = std::ranges::any_of(
      clients_, [](const auto& entry) { return entry.second.sent && !entry.second.done; });
  if (!waits) Progress();
  if (events_.now() - last_progress_ > kStuck) {
    std::string what = "requests wait and nothing runs";
    for (const auto& worker : workers_) what += "; " + worker->Describe();
    return events_.Violate(what);
  }
  if (served_ < clients_.size()) events_.At(milliseconds(100), [this] { Watch(); });
}

// ---- the router

std::vector<size_t> PoolWorld::Able(bool prefill) const {
  std::vector<size_t> able;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerInfo& info = workers_[i]->info();
    if (prefill ? info.can_prefill : info.can_decode) able.push_back(i);
  }
  return able;
}

bool PoolWorld::DecodeFirst(const Client& client) const {
  return DecodeTakesFirst(workers_[client.prefill]->info(), workers_[client.decode]->info());
}

void PoolWorld::Send(RequestId id) {
  Client& client = clients_.at(id);
  client.sent = true;
  const std::vector<size_t> prefill = Able(true);
  const std::vector<size_t> decode = Able(false);
  do {
    client.prefill = prefill[events_.Below(prefill.size())];
    client.decode = decode[events_.Below(decode.size())];
  } while (client.prefill == client.decode);
  client.decode_epoch = Epoch(client.decode_epoch.value() + 1);
  client.epoch = client.decode_epoch;
  client.prefill_holds = false;
  SendDecode(id, client);
}

// Sends both parts, or after a refusal the part of the decode worker and a redirect.
void PoolWorld::SendDecode(RequestId id, Client& client) {
  const bool redirect = client.epoch != client.decode_epoch;
  ++client.sessions;
  const bool decode_first = DecodeFirst(client);
  client.prefill_holds |= !decode_first;
  const bool ordered = options_.order == PoolOrder::kOfCluster;
  DispatchCommand dispatch;
  Request& request = dispatch.request;
  request.id = id;
  std::vector<TokenId> tokens(static_cast<size_t>(client.prompt), 1);
  tokens[0] = static_cast<TokenId>(id.value() % 1000);  // no prefix in common
  request.tokens = std::move(tokens);
  request.prompt_length = client.prompt;
  request.max_tokens = client.output;
  request.priority = client.priority;
  request.arrival = events_.now();
  request.age = events_.now() - client.arrival;
  dispatch.session = SessionId(id.value() * kSessionsPerRequest + client.sessions);
  const auto post = [&](size_t worker, const DispatchCommand& command) {
    events_.At(events_.Delay(), [this, worker, command] { workers_[worker]->Dispatch(command); });
  };
  request.kind = RequestKind::kDecode;
  request.epoch = client.decode_epoch;
  request.peer_first = ordered && !decode_first;
  dispatch.peer.id = workers_[client.prefill]->info().id;
  post(client.decode, dispatch);
  request.kind = RequestKind::kPrefill;
  request.epoch = client.epoch;
  request.peer_first = ordered && decode_first;
  dispatch.peer.id = workers_[client.decode]->info().id;
  if (!redirect) return post(client.prefill, dispatch);
  const RedirectCommand command{
      id, client.epoch, dispatch.session, client.decode_epoch, dispatch.peer, request.peer_first};
  events_.At(events_.Delay(), [this, prefill = client.prefill, command] {
    workers_[prefill]->prefill().OnRedirect(RouterKey(1), command);
    workers_[prefill]->Act();
  });
}

void PoolWorld::OnRefused(RequestId id, Epoch epoch) {
  const Client& client = clients_.at(id);
  if (client.done || epoch != client.epoch) return;
  const RequestKey refused(id, client.decode_epoch);
  events_.At(events_.Delay(),
             [this, decode = client.decode, refused] { workers_[decode]->Cancel(refused); });
  const int64_t doublings = int64_t{1} << std::min<uint64_t>(client.sessions - 1, 16);
  events_.At(std::min(kLongestPause, kFirstPause * doublings), [this, id, epoch] {
    if (clients_.at(id).epoch == epoch && !clients_.at(id).done) Redirect(id);
  });
}

void PoolWorld::Redirect(RequestId id) {
  Client& client = clients_.at(id);
  if (client.sessions + 1 == kSessionsPerRequest) return events_.Violate("too many refusals");
  const size_t before = client.decode;
  std::vector<size_t> decode = Able(false);
  std::erase(decode, client.prefill);
  std::erase_if(decode, [&](size_t worker) {
    client.decode = worker;
    return client.prefill_holds && DecodeFirst(client);
  });
  client.decode = decode.empty() ? before : decode[events_.Below(decode.size())];
  client.decode_epoch = Epoch(client.decode_epoch.value() + 1);
  SendDecode(id, client);
}

void PoolWorld::OnFailed(RequestId id, Epoch epoch, const Status& status) {
  const Client& client = clients_.at(id);
  if (client.done || (epoch != client.epoch && epoch != client.decode_epoch)) return;
  events_.Violate(fmt::format("request {} failed: {}", id, Message(status)));
}

void PoolWorld::OnAnswered(RequestId id, Epoch epoch) {
  Client& client = clients_.at(id);
  if (client.done || epoch != client.decode_epoch) return;
  client.done = true;
  ++served_;
  Progress();
  for (auto& [other, waiting] : clients_) {
    if (waiting.sent && !waiting.done && waiting.arrival < client.arrival) ++waiting.passed;
  }
}

// ---- the callbacks of the transfer

void PoolWorld::OnGranted(size_t sender, const SessionKey& session) {
  Progress();
  workers_[sender]->prefill().OnGranted(session);
  workers_[sender]->Act();
}

void PoolWorld::OnRefused(size_t sender, const SessionKey& session, const Status& status) {
  workers_[sender]->prefill().OnRefused(session, status, events_.now());
  workers_[sender]->Act();
}

void PoolWorld::OnFinished(size_t sender, const SessionKey& session, const Status& status) {
  workers_[sender]->prefill().OnFinished(session, status, {}, events_.now());
  workers_[sender]->Act();
}

void PoolWorld::OnOffer(size_t receiver, const SessionKey& session, uint32_t total_tokens) {
  workers_[receiver]->decode().OnOffer(session, total_tokens, events_.now());
  workers_[receiver]->Act();
}

void PoolWorld::OnWithdrawn(size_t receiver, const SessionKey& session, const Status& status) {
  workers_[receiver]->decode().OnWithdrawn(session, status, events_.now());
  workers_[receiver]->Act();
}

void PoolWorld::OnCommitted(size_t receiver,
                            const SessionKey& session,
                            const std::vector<SampledToken>& first_tokens) {
  workers_[receiver]->decode().OnCommitted(session, first_tokens, {});
  workers_[receiver]->Act();
}

void PoolWorld::OnReleased(size_t receiver, const SessionKey& session, const Status& status) {
  workers_[receiver]->decode().OnReleased(session, status);
  workers_[receiver]->Act();
}

}  // namespace baton
