#include "tests/unit/handoff/simulated_worker.h"

#include <utility>
#include <variant>

#include "common/base/overloaded.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr RouterKey kRouter(1);
constexpr Duration kTick = milliseconds(20);
constexpr int32_t kLayers = 4;

PrefillHandoffs::Limits PrefillLimits() {
  return {.redirect_wait = milliseconds(300), .handoff = milliseconds(1500)};
}

DecodeHandoffs::Limits DecodeLimits() {
  return {.match_wait = milliseconds(300), .queue_wait = milliseconds(1500), .unmatched_offers = 4};
}

BlockId SourceBlock(RequestId request, uint32_t index) {
  return BlockId(static_cast<uint32_t>(request.value()) * 1000 + index);
}

}  // namespace

TokenId FirstToken(RequestId request, int32_t sample) {
  return static_cast<TokenId>(request.value() * 10 + static_cast<uint64_t>(sample));
}

bool EndsAtOnce(RequestId request) {
  return request.value() % 7 == 0;
}

SimulatedWorker::SimulatedWorker(size_t index,
                                 const WorkerFaults& faults,
                                 EventQueue& events,
                                 SimulatedTransfer& transfer,
                                 Report report)
    : index_(index),
      faults_(faults),
      events_(events),
      transfer_(transfer),
      report_(std::move(report)),
      prefill_(PrefillLimits()),
      decode_(DecodeLimits()),
      from_router_(events),
      from_engine_(events),
      from_transfer_(events) {
  Tick();
}

std::function<void()> SimulatedWorker::WhileAlive(std::function<void()> event) const {
  return [alive = std::weak_ptr<bool>(alive_), event = std::move(event)] {
    if (!alive.expired()) event();
  };
}

void SimulatedWorker::Later(Duration delay, std::function<void()> event) {
  events_.At(delay, WhileAlive(std::move(event)));
}

void SimulatedWorker::Tick() {
  prefill_.OnTime(events_.now());
  decode_.OnTime(events_.now());
  Act();
  Later(kTick, [this] { Tick(); });
}

// ---- the router's commands, as Worker handles them

void SimulatedWorker::Send(const WorkerCommand& command) {
  from_router_.Post(WhileAlive([this, command] {
    std::visit([this](const auto& each) { Do(each); }, command);
    Act();
  }));
}

void SimulatedWorker::Do(const DispatchCommand& dispatch) {
  const RequestKey key(dispatch.request.id, dispatch.request.epoch);
  if (leaving_) return Fail(key, Status(StatusCode::kUnavailable, "the worker is leaving"));
  if (!book_.emplace(key, BookEntry{dispatch.request.kind}).second) return;
  const Status status = dispatch.request.kind == RequestKind::kPrefill
                            ? prefill_.OnDispatch(kRouter, dispatch)
                            : decode_.OnDispatch(kRouter, dispatch, events_.now());
  if (status.ok()) return Submit(dispatch.request);
  book_.erase(key);
  Fail(key, status);
}

void SimulatedWorker::Do(const RedirectCommand& redirect) {
  prefill_.OnRedirect(kRouter, redirect);
}

void SimulatedWorker::Do(const CancelCommand& cancel) {
  const RequestKey key(cancel.id, cancel.epoch);
  if (book_.contains(key)) CancelInEngine(key);
  prefill_.OnCancel(kRouter, key);
  decode_.OnCancel(kRouter, key);
}

void SimulatedWorker::LoseRouter() {
  from_router_.Post(WhileAlive([this] {
    for (const auto& [key, entry] : book_) CancelInEngine(key);
    prefill_.OnRouterLost(kRouter);
    decode_.OnRouterLost(kRouter);
    Act();
  }));
}

void SimulatedWorker::Leave() {
  from_router_.Post(WhileAlive([this] {
    leaving_ = true;
    decode_.OnLeaving();
    Act();
  }));
}

void SimulatedWorker::Fail(const RequestKey& key, const Status& status) {
  WorkerReport report;
  report.failed.push_back({key.first, key.second, status, IsRetryable(status)});
  report_(std::move(report));
}

// ---- the engine

void SimulatedWorker::Submit(const Request& request) {
  const RequestKey key(request.id, request.epoch);
  engine_[key] = {request};
  if (request.deadline != kNever) {
    Later(request.deadline - events_.now(), [this, key] {
      EndInEngine(key, Status(StatusCode::kDeadlineExceeded, "the request's deadline has passed"));
    });
  }
  if (!request.peer_first) Begin(key);
}

void SimulatedWorker::Begin(const RequestKey& key) {
  if (std::exchange(engine_.at(key).begun, true)) return;
  Later(events_.Delay(), [this, key] {
    const EngineRequest& request = engine_.at(key);
    if (request.ended) return;
    if (request.request.kind == RequestKind::kDecode) return Reserve(key);
    from_engine_.Post(WhileAlive([this, key] {
      prefill_.OnStarted(key, events_.now());
      Act();
    }));
    Compute(key, 0);
  });
}

void SimulatedWorker::Compute(const RequestKey& key, uint32_t index) {
  EngineRequest& request = engine_.at(key);
  if (request.ended) return;
  const uint32_t end = PromptBlocks(static_cast<uint32_t>(request.request.tokens.size()), 16);
  if (index == end) return SampleFirstTokens(key);
  std::vector<BlockId> blocks;
  for (uint64_t count = 1 + events_.Below(end - index); count > 0; --count) {
    blocks.push_back(SourceBlock(key.first, index + static_cast<uint32_t>(blocks.size())));
  }
  const auto view = [key, index](const std::vector<BlockId>& kept) {
    return KvChunk{key.first, key.second, static_cast<int32_t>(index), 1, kept};
  };
  if (events_.Chance(0.5)) {
    request.leased = true;
    from_engine_.Post(WhileAlive([this, view, blocks] {
      prefill_.OnLayers(view(blocks), kLayers / 2);
      Act();
    }));
  }
  if (events_.Chance(faults_.failed_step)) {
    return EndInEngine(key, Status(StatusCode::kInternal, "the step failed"));
  }
  request.leased = true;
  from_engine_.Post(WhileAlive([this, view, blocks] {
    prefill_.OnChunk(view(blocks), events_.now());
    Act();
  }));
  const uint32_t next = index + static_cast<uint32_t>(blocks.size());
  Later(events_.Delay(), [this, key, next] { Compute(key, next); });
}

void SimulatedWorker::SampleFirstTokens(const RequestKey& key) {
  for (int32_t sample = 0; sample < engine_.at(key).request.samples; ++sample) {
    TokenOutput token;
    token.id = key.first;
    token.epoch = key.second;
    token.sample = sample;
    token.token.token = FirstToken(key.first, sample);
    token.finish = EndsAtOnce(key.first) ? FinishReason::kStop : FinishReason::kHandedOff;
    from_engine_.Post(WhileAlive([this, token] { prefill_.OnToken(token); }));
  }
  EndInEngine(key, OkStatus());
}

void SimulatedWorker::Reserve(const RequestKey& key) {
  EngineRequest& request = engine_.at(key);
  if (request.ended) return;
  if (events_.Chance(faults_.no_room)) {
    const auto code =
        events_.Chance(0.7) ? StatusCode::kResourceExhausted : StatusCode::kOutOfRange;
    return EndInEngine(key, Status(code, "no blocks are free"));
  }
  request.leased = true;
  from_engine_.Post(WhileAlive([this, key] {
    decode_.OnReserved({key.first, key.second, 0, {BlockId(1)}});
    Act();
  }));
}

void SimulatedWorker::EndInEngine(const RequestKey& key, const Status& status) {
  const auto found = engine_.find(key);
  if (found == engine_.end() || std::exchange(found->second.ended, true)) return;
  from_engine_.Post(WhileAlive([this, key, status] { DeliverEnd(key, status); }));
}

void SimulatedWorker::CancelInEngine(const RequestKey& key) {
  Later(events_.Delay(), [this, key] {
    EndInEngine(key, Status(StatusCode::kCancelled, "the request was cancelled"));
  });
}

// As Worker does.
void SimulatedWorker::DeliverEnd(const RequestKey& key, const Status& status) {
  const BookEntry entry = book_.at(key);
  book_.erase(key);
  if (status.ok()) {
    WorkerReport report;
    report.finished.push_back({key.first, key.second, {}});
    report_(std::move(report));
  }
  bool must_report = true;
  if (entry.kind == RequestKind::kPrefill) {
    prefill_.OnEnded(key, status);
  } else {
    must_report = decode_.OnEnded(key, status);
  }
  Act();
  if (!status.ok() && must_report && !entry.end_reported) Fail(key, status);
}

// ---- callbacks of the sender and the receiver

void SimulatedWorker::Granted(const SessionKey& session) {
  from_transfer_.Post(WhileAlive([this, session] {
    prefill_.OnGranted(session);
    Act();
  }));
}

void SimulatedWorker::Refused(const SessionKey& session, const Status& status) {
  from_transfer_.Post(WhileAlive([this, session, status] {
    prefill_.OnRefused(session, status, events_.now());
    Act();
  }));
}

void SimulatedWorker::Finished(const SessionKey& session, const Status& status) {
  from_transfer_.Post(WhileAlive([this, session, status] {
    prefill_.OnFinished(session, status, {}, events_.now());
    Act();
  }));
}

void SimulatedWorker::Offered(const SessionKey& session, uint32_t total_tokens) {
  from_transfer_.Post(WhileAlive([this, session, total_tokens] {
    decode_.OnOffer(session, total_tokens, events_.now());
    Act();
  }));
}

void SimulatedWorker::Withdrawn(const SessionKey& session, const Status& status) {
  from_transfer_.Post(WhileAlive([this, session, status] {
    decode_.OnWithdrawn(session, status, events_.now());
    Act();
  }));
}

void SimulatedWorker::Committed(const SessionKey& session,
                                const std::vector<SampledToken>& first_tokens) {
  from_transfer_.Post(WhileAlive([this, session, first_tokens] {
    decode_.OnCommitted(session, first_tokens, {});
    Act();
  }));
}

void SimulatedWorker::Released(const SessionKey& session, const Status& status) {
  from_transfer_.Post(WhileAlive([this, session, status] {
    decode_.OnReleased(session, status);
    Act();
  }));
}

// ---- the actions of the machines

void SimulatedWorker::Act() {
  for (auto actions = prefill_.TakeActions(); !actions.empty(); actions = prefill_.TakeActions()) {
    for (const PrefillAction& action : actions) {
      std::visit(Overloaded{[this](const AbortSession& abort) {
                              transfer_.AbortSender(abort.session, abort.reason);
                            },
                            [this](const auto& each) { Act(each); }},
                 action);
    }
  }
  for (const DecodeAction& action : decode_.TakeActions()) {
    std::visit(Overloaded{[this](const AbortSession& abort) {
                            transfer_.AbortReceiver(abort.session, abort.reason);
                          },
                          [this](const auto& each) { Act(each); }},
               action);
  }
}

void SimulatedWorker::Act(const ConnectPeer& action) {
  const WorkerId peer = action.peer.id;
  if (events_.Chance(faults_.silent_dial)) return;
  if (events_.Chance(0.5)) return prefill_.OnPeerSettled(peer, OkStatus(), events_.now());
  const Status settled = events_.Chance(faults_.unreachable)
                             ? Status(StatusCode::kUnavailable, "it cannot be reached")
                             : OkStatus();
  Later(events_.Delay(), [this, peer, settled] {
    prefill_.OnPeerSettled(peer, settled, events_.now());
    Act();
  });
}

void SimulatedWorker::Act(const SendBlocks& action) {
  for (uint32_t i = 0; i < action.blocks.size(); ++i) {
    if (action.blocks[i] != SourceBlock(RequestOf(action.session), action.first_index + i)) {
      events_.Violate("a block of another request or place is sent");
    }
  }
  if (action.layers.has_value()) return;  // the whole blocks follow
  transfer_.BlocksReady(action.session, action.first_index, action.blocks.size());
}

void SimulatedWorker::Act(const GrantOffer& action) {
  const RequestKey key(action.reservation.id, action.reservation.epoch);
  const auto found = engine_.find(key);
  if (found == engine_.end() || !found->second.leased) {
    events_.Violate("blocks are granted that are not reserved");
  }
  if (key != RequestKey(RequestOf(action.session), action.session.second)) {
    events_.Violate("the blocks of another request are granted");
  }
  transfer_.Grant(action.session);
}

void SimulatedWorker::Act(const ActivateRequest& action) {
  const RequestKey key = action.request;
  if (!transfer_.IsCommitted(key.first, key.second)) events_.Violate("activated without its KV");
  for (size_t i = 0; i < action.first_tokens.size(); ++i) {
    if (action.first_tokens[i].token != FirstToken(key.first, static_cast<int32_t>(i))) {
      events_.Violate("activated with a wrong first token");
    }
  }
  Later(events_.Delay(), [this, key] { EndInEngine(key, OkStatus()); });
}

// Its request may have ended meanwhile, and the engine ignores it then.
void SimulatedWorker::Act(const StartRequest& action) {
  const auto found = engine_.find(action.request);
  if (found == engine_.end()) return events_.Violate("a request is started that was not submitted");
  if (found->second.begun) events_.Violate("a request is started that was not held");
  Begin(action.request);
}

void SimulatedWorker::Act(const ReportHandoff& action) {
  WorkerReport report;
  report.handoffs.push_back(action.report);
  report_(std::move(report));
}

void SimulatedWorker::Act(const DropRequest& action) {
  const auto found = book_.find(action.request);
  if (found == book_.end()) return;
  found->second.end_reported = true;
  CancelInEngine(action.request);
}

void SimulatedWorker::Act(const ReleaseKv& action) {
  const auto& [id, epoch] = action.request;
  const auto found = engine_.find(action.request);
  if (found == engine_.end() || !std::exchange(found->second.leased, false)) {
    return events_.Violate(fmt::format("request {}: blocks are released without a lease", id));
  }
  if (found->second.request.kind == RequestKind::kPrefill) {
    if (!found->second.ended) events_.Violate("blocks are released before they are computed");
    if (transfer_.MayRead(index_, id)) events_.Violate("blocks are released that are still read");
  } else if (transfer_.MayWrite(index_, id, epoch)) {
    events_.Violate("blocks are released that may still be written");
  }
}

std::string SimulatedWorker::Leftovers() const {
  if (prefill_.size() > 0) return fmt::format("{} hand-offs of prefill", prefill_.size());
  if (decode_.size() > 0) return fmt::format("{} hand-offs of decode", decode_.size());
  if (!book_.empty()) return fmt::format("{} requests", book_.size());
  for (const auto& [key, request] : engine_) {
    if (request.leased) return fmt::format("a lease of request {}", key.first);
  }
  return "";
}

}  // namespace baton
