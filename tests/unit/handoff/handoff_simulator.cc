#include "tests/unit/handoff/handoff_simulator.h"

#include <algorithm>

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr Duration kArrivals = milliseconds(400);
// By then every request must have ended, whatever the faults.
constexpr Duration kEnd = std::chrono::seconds(9);
constexpr Duration kNoticed = std::chrono::seconds(1);
constexpr uint64_t kMaxSessions = 4;

}  // namespace

HandoffSimulator::HandoffSimulator(uint64_t seed, const HandoffFaults& faults)
    : faults_(faults),
      events_(seed),
      transfer_(events_, faults.transfer, *this),
      to_router_(kWorkers, OrderedChannel(events_)),
      workers_(kWorkers) {}

void HandoffSimulator::Run() {
  const Time start = events_.now();
  for (size_t i = 0; i < kWorkers; ++i) AddWorker(i);
  for (uint64_t i = 1; i <= kRequests; ++i) {
    events_.At(milliseconds(events_.Below(ToMillis(kArrivals))),
               [this, i] { Start(RequestId(i)); });
  }
  events_.At(Duration{}, [this] { Disturb(); });
  events_.RunUntil(start + kEnd);
  for (const auto& [id, client] : clients_) {
    if (!client.outcome.has_value()) events_.Violate(fmt::format("request {} never ended", id));
  }
  for (size_t i = 0; i < kWorkers; ++i) {
    const std::string left = workers_[i]->Leftovers();
    if (!left.empty()) events_.Violate(fmt::format("worker {} still holds {}", i, left));
  }
  transfer_.CheckEnded();
}

void HandoffSimulator::AddWorker(size_t index) {
  const auto report = [this, index](WorkerReport sent) {
    to_router_[index].Post([this, index, sent = std::move(sent)] { OnReport(index, sent); });
  };
  workers_[index] =
      std::make_unique<SimulatedWorker>(index, faults_.worker, events_, transfer_, report);
}

// ---- the router

void HandoffSimulator::Start(RequestId id) {
  Client& client = clients_[id];
  Request& request = client.request;
  request.id = id;
  request.epoch = Epoch(1);
  request.tokens = std::vector<TokenId>(1 + events_.Below(80), 1);
  request.samples = 1 + static_cast<int32_t>(events_.Below(2));
  if (events_.Chance(0.5)) {
    request.deadline = events_.now() + milliseconds(500 + events_.Below(2500));
  }
  client.prefill = events_.Below(kPrefillWorkers);
  client.decode_epoch = request.epoch;
  const bool lost = events_.Chance(faults_.lose_dispatch);
  const bool decode_lost = lost && events_.Chance(0.5);
  ChooseDecode(client);
  client.sessions = 1;
  if (!decode_lost) DispatchDecode(client);
  if (!lost || decode_lost) {
    workers_[client.prefill]->Send(Dispatch(client, RequestKind::kPrefill));
  } else {
    // A decode worker without room leaves the report to the prefill worker, so the router must
    // notice by itself that it has lost the prefill worker.
    events_.At(kNoticed, [this, id] {
      End(clients_.at(id), Status(StatusCode::kUnavailable, "the prefill worker is lost"));
    });
  }
  if (events_.Chance(faults_.cancel)) {
    events_.At(milliseconds(events_.Below(300)), [this, id] {
      End(clients_.at(id), Status(StatusCode::kCancelled, "the user left"));
    });
  }
}

// As if the workers did both and their ids were in any order: either one takes its blocks first.
// The wrong choice for a prefill worker that holds blocks is rare, but it must do no harm.
void HandoffSimulator::ChooseDecode(Client& client) {
  client.decode = kPrefillWorkers + events_.Below(kWorkers - kPrefillWorkers);
  client.decode_first = events_.Chance(client.prefill_holds ? 0.1 : 0.5);
  client.prefill_holds |= !client.decode_first;
}

DispatchCommand HandoffSimulator::Dispatch(const Client& client, RequestKind kind) const {
  const bool decode = kind == RequestKind::kDecode;
  DispatchCommand dispatch;
  dispatch.request = client.request;
  dispatch.request.kind = kind;
  if (decode) dispatch.request.epoch = client.decode_epoch;
  dispatch.request.peer_first = decode != client.decode_first;
  dispatch.session = SessionId(client.request.id.value() * kSessionsPerRequest + client.sessions);
  dispatch.peer.id = WorkerId(std::to_string(decode ? client.prefill : client.decode));
  return dispatch;
}

void HandoffSimulator::DispatchDecode(Client& client) {
  workers_[client.decode]->Send(Dispatch(client, RequestKind::kDecode));
}

void HandoffSimulator::Cancel(size_t worker, RequestId id, Epoch epoch) {
  if (!events_.Chance(faults_.lose_cancel)) workers_[worker]->Send(CancelCommand{id, epoch, false});
}

void HandoffSimulator::End(Client& client, const Status& outcome) {
  if (client.outcome.has_value()) return;
  client.outcome = outcome;
  if (outcome.ok()) ++served_;
  const Request& request = client.request;
  Cancel(client.prefill, request.id, request.epoch);
  Cancel(client.decode, request.id, client.decode_epoch);
}

bool HandoffSimulator::IsPart(const Client& client, size_t worker, Epoch epoch) const {
  if (worker == client.prefill) return epoch == client.request.epoch;
  return worker == client.decode && epoch == client.decode_epoch;
}

void HandoffSimulator::OnReport(size_t worker, const WorkerReport& report) {
  for (const HandoffReport& handoff : report.handoffs) OnHandoff(worker, handoff);
  for (const FinishedReport& finished : report.finished) {
    Client& client = clients_.at(finished.id);
    const bool whole = worker != client.prefill || EndsAtOnce(finished.id);
    if (whole && IsPart(client, worker, finished.epoch)) End(client, OkStatus());
  }
  for (const FailedReport& failed : report.failed) {
    Client& client = clients_.at(failed.id);
    if (IsPart(client, worker, failed.epoch)) End(client, failed.status);
  }
}

void HandoffSimulator::OnHandoff(size_t worker, const HandoffReport& report) {
  Client& client = clients_.at(report.id);
  if (client.outcome.has_value() || !IsPart(client, worker, report.epoch)) return;
  if (report.outcome == HandoffReport::Outcome::kFailed) return End(client, report.status);
  if (report.outcome != HandoffReport::Outcome::kRefused) return;
  if (worker != client.prefill) events_.Violate("a decode worker reports a refusal");
  if (!events_.Chance(faults_.no_redirect)) Redirect(client, report.status);
}

void HandoffSimulator::Redirect(Client& client, const Status& refusal) {
  if (client.sessions == kMaxSessions) return End(client, refusal);
  const Request& request = client.request;
  Cancel(client.decode, request.id, client.decode_epoch);
  ++redirects_;
  ++client.sessions;
  client.decode_epoch = Epoch(client.decode_epoch.value() + 1);
  ChooseDecode(client);
  if (!events_.Chance(faults_.lose_dispatch)) DispatchDecode(client);
  const DispatchCommand prefill = Dispatch(client, RequestKind::kPrefill);
  workers_[client.prefill]->Send(RedirectCommand{request.id,
                                                 request.epoch,
                                                 prefill.session,
                                                 client.decode_epoch,
                                                 prefill.peer,
                                                 client.decode_first});
}

void HandoffSimulator::EndRequestsOf(size_t worker) {
  for (auto& [id, client] : clients_) {
    if (client.prefill != worker && client.decode != worker) continue;
    End(client, Status(StatusCode::kUnavailable, "the worker is lost"));
  }
}

// ---- faults

void HandoffSimulator::Disturb() {
  for (size_t i = 0; i < kWorkers; ++i) {
    if (events_.Chance(faults_.crash)) {
      transfer_.Crash(i);
      AddWorker(i);
      events_.At(events_.Delay(), [this, i] { EndRequestsOf(i); });
    }
    if (events_.Chance(faults_.break_streams)) transfer_.BreakStreams(i);
    if (events_.Chance(faults_.lose_router)) {
      workers_[i]->LoseRouter();
      events_.At(events_.Delay(), [this, i] { EndRequestsOf(i); });
    }
    if (events_.Chance(faults_.leave)) workers_[i]->Leave();
  }
  events_.At(milliseconds(10), [this] { Disturb(); });
}

// ---- the callbacks of the transfer

void HandoffSimulator::OnGranted(size_t sender, const SessionKey& session) {
  workers_[sender]->Granted(session);
}

void HandoffSimulator::OnRefused(size_t sender, const SessionKey& session, const Status& status) {
  workers_[sender]->Refused(session, status);
}

void HandoffSimulator::OnFinished(size_t sender, const SessionKey& session, const Status& status) {
  workers_[sender]->Finished(session, status);
}

void HandoffSimulator::OnOffer(size_t receiver, const SessionKey& session, uint32_t total_tokens) {
  workers_[receiver]->Offered(session, total_tokens);
}

void HandoffSimulator::OnWithdrawn(size_t receiver,
                                   const SessionKey& session,
                                   const Status& status) {
  workers_[receiver]->Withdrawn(session, status);
}

void HandoffSimulator::OnCommitted(size_t receiver,
                                   const SessionKey& session,
                                   const std::vector<SampledToken>& first_tokens) {
  workers_[receiver]->Committed(session, first_tokens);
}

void HandoffSimulator::OnReleased(size_t receiver,
                                  const SessionKey& session,
                                  const Status& status) {
  workers_[receiver]->Released(session, status);
}

}  // namespace baton
