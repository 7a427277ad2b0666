// The data path and the decode worker of HandoffWorld.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tests/explorer/handoff_world.h"
#include "tests/explorer/world_constants.h"

namespace baton {
namespace {

const WorkerId kPrefillName("prefill");
const Status kCancelledStatus(StatusCode::kCancelled, "cancelled");
const Status kNoRoom(StatusCode::kResourceExhausted, "no blocks are free");
const Status kStreamLost(StatusCode::kUnavailable, "the stream ended");
const Status kUnproven(StatusCode::kUnavailable, "the close is not proven");
constexpr uint64_t kDamaged = uint64_t{1} << 40;

}  // namespace

// ---- the data path

void HandoffWorld::OnWrite(const Event& event, Deviation deviation) {
  const auto found = writes_.find(event.number);
  if (found == writes_.end()) return;  // taken back
  Write& write = found->second;
  // A write of a process that has ended is in the network: its source was read before.
  if (!write.in_network && source_[write.source.value()].value != write.value) {
    return Violate("a source was read after it was released");
  }
  const bool state = owed_.is_state(write.link);
  const bool open = decode_->windows.contains(write.window_key) || fence_ == Fence::kMissing ||
                    (state && fence_ == Fence::kMissingForStates);
  if (!open || deviation == Deviation::kFail) {
    return EndWrite(event.number, false);
  }
  TargetCell& cell = target_[write.target.value()];
  if (!cell.owner.has_value() || cell.owner->first.value() != write.session.first.value() ||
      cell.owner->second != write.session.second || !cell.writable) {
    return Violate("a write landed in a block that its session does not hold");
  }
  if (state && fence_ == Fence::kHastyForStates && !std::exchange(write.reported, true)) {
    ReportArrival(write, write.value);
    return Requeue(event);
  }
  const uint64_t value = write.value + (deviation == Deviation::kDamage ? kDamaged : 0);
  cell.halves[write.half_landed ? 1 : 0] = value;
  if (deviation == Deviation::kTear && !write.half_landed) {
    write.half_landed = true;
    return Requeue(event);
  }
  cell.halves[1] = value;
  Land(event, write, deviation);
}

void HandoffWorld::Land(const Event& event, Write& write, Deviation deviation) {
  const TargetCell& cell = target_[write.target.value()];
  const uint64_t checksum =
      cell.halves[0] == cell.halves[1] ? cell.halves[0] : cell.halves[0] ^ ~cell.halves[1];
  const Write landed = write;
  // A write that happens twice ends when it has landed for the last time.
  const bool again = deviation == Deviation::kTwice || deviation == Deviation::kTwiceLate;
  if (!again) EndWrite(event.number, true);
  ReportArrival(landed, checksum);
}

void HandoffWorld::ReportArrival(const Write& write, uint64_t checksum) {
  const SessionKey key = write.session;
  Receiving* session = decode_->sessions.Find(key);
  if (session == nullptr) return;
  PieceArrival arrival;
  arrival.link = write.link;
  arrival.first = write.block;
  arrival.count = 1;
  arrival.bytes = kPieceBytes;
  arrival.checksums = {&checksum, 1};
  session->machine.OnArrival(arrival, now_);
  ActReceiver(key);
}

void HandoffWorld::OnCloseWindow(const Event& event, Deviation deviation) {
  if (deviation != Deviation::kUnfenced && decode_->windows.erase(event.number) == 0) return;
  if (Receiving* session = decode_->sessions.Find(event.session)) {
    const Status status = deviation == Deviation::kUnfenced ? kUnproven : OkStatus();
    session->machine.OnWindowsClosed(status, now_);
    ActReceiver(event.session);
  }
}

// ---- the process and its engine

void HandoffWorld::CrashDecode() {
  ++decode_life_;
  decode_.emplace(DecodeHandoffs::Limits{
      .match_wait = kRoleWait, .queue_wait = kHandoffLimit, .unmatched_offers = 4});
  for (uint32_t block = 0; block < target_.size(); ++block) {
    target_[block] = {};
    decode_->engine.free.push_back(BlockId(block));
  }
}

void HandoffWorld::OnDecodeCommand(const WorkerCommand& command) {
  if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
    const RequestKey key(dispatch->request.id, dispatch->request.epoch);
    const Status status = decode_->role.OnDispatch(kRouter, *dispatch, now_);
    if (!status.ok()) return Violate("the router dispatched an attempt twice");
    decode_->engine.jobs[key] = {std::make_shared<const Request>(dispatch->request)};
    if (!dispatch->request.peer_first) {
      BeginInEngine(Kind::kDecodeStep, key);
    }
  } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
    const RequestKey key(cancel->id, cancel->epoch);
    Emit({.kind = Kind::kDecodeStep, .life = decode_life_, .request = key, .number = kCancelled});
    decode_->role.OnCancel(kRouter, key);
  }
  ActDecode();
}

void HandoffWorld::OnDecodeStep(const Event& event, Deviation deviation) {
  Engine& engine = decode_->engine;
  const auto found = engine.jobs.find(event.request);
  if (found == engine.jobs.end() || found->second.ended) return;
  Job& job = found->second;
  if (event.number == kCancelled) return EndDecode(event.request, kCancelledStatus);
  if (event.number == kRun) {
    CheckContent(event.request, job.blocks, job.computed);
    return EndDecode(event.request, OkStatus());
  }
  if (deviation == Deviation::kFail) return EndDecode(event.request, kNoRoom);
  const std::vector<uint32_t> entries = OwedEntries();
  if (engine.free.size() < entries.size()) return engine.waiting.push_back(event.request);
  job.blocks.assign(size_t{kBlocks} * groups(), kUnowed);
  for (const uint32_t entry : entries) {
    const BlockId block = engine.free.front();  // the one that was released first
    engine.free.erase(engine.free.begin());
    target_[block.value()].owner = event.request;
    job.blocks[entry] = block;
  }
  job.leased = true;
  Emit({.kind = Kind::kDecodeEvent,
        .life = decode_life_,
        .request = event.request,
        .number = kReserved});
}

void HandoffWorld::EndDecode(const RequestKey& key, const Status& status) {
  Job& job = decode_->engine.jobs.at(key);
  job.ended = true;
  if (!job.leased) FreeTargets(job);
  Emit({.kind = Kind::kDecodeEvent,
        .life = decode_life_,
        .request = key,
        .number = kEnded,
        .status = status});
}

KvReservation HandoffWorld::ReservationOf(const RequestKey& key, const Job& job) const {
  KvReservation reservation = {.id = key.first, .epoch = key.second, .blocks = {}};
  for (uint32_t entry = 0; entry < job.blocks.size(); ++entry) {
    const bool state = owed_.is_state(entry % groups());
    if (!state) reservation.blocks.push_back(job.blocks[entry]);
    if (state && job.blocks[entry] != kUnowed) reservation.state.push_back(job.blocks[entry]);
  }
  return reservation;
}

void HandoffWorld::OnDecodeEvent(const Event& event) {
  Job& job = decode_->engine.jobs.at(event.request);
  if (event.number == kReserved) {
    decode_->role.OnReserved(ReservationOf(event.request, job));
    return ActDecode();
  }
  job.in_book = false;
  if (event.status.ok()) {
    Emit({.kind = Kind::kDecodeReport,
          .life = decode_life_,
          .request = event.request,
          .number = kFinished});
  }
  const bool must_report = decode_->role.OnEnded(event.request, event.status);
  ActDecode();
  if (!event.status.ok() && must_report && !job.end_reported) {
    Emit({.kind = Kind::kDecodeReport,
          .life = decode_life_,
          .request = event.request,
          .number = kFailed});
  }
}

void HandoffWorld::ReleaseTarget(const RequestKey& key) {
  const auto found = decode_->engine.jobs.find(key);
  if (found == decode_->engine.jobs.end() || !std::exchange(found->second.leased, false)) {
    return Violate("the decode worker releases blocks without a lease");
  }
  if (found->second.ended) FreeTargets(found->second);
}

void HandoffWorld::FreeTargets(Job& job) {
  Engine& engine = decode_->engine;
  for (const BlockId block : job.blocks) {
    if (block == kUnowed) continue;
    // The content stays, as in a real arena; whether the block is open to writes stays, too.
    target_[block.value()].owner.reset();
    if (std::ranges::find(engine.free, block) != engine.free.end()) Violate("freed twice");
    engine.free.push_back(block);
  }
  job.blocks.clear();
  for (; !engine.waiting.empty(); engine.waiting.pop_front()) {
    Emit({.kind = Kind::kDecodeStep,
          .life = decode_life_,
          .request = engine.waiting.front(),
          .number = kCompute});
  }
}

// ---- the role

void HandoffWorld::ActDecode() {
  for (const DecodeAction& action : decode_->role.TakeActions()) Act(action);
}

void HandoffWorld::Act(const DecodeAction& action) {
  if (const auto* activate = std::get_if<ActivateRequest>(&action)) {
    Activate(*activate);
  } else if (const auto* report = std::get_if<ReportHandoff>(&action)) {
    const HandoffReport& handoff = report->report;
    if (handoff.outcome == HandoffReport::Outcome::kRefused) {
      Violate("a decode worker reports a refusal");
    }
    if (handoff.outcome != HandoffReport::Outcome::kFailed) return;
    Emit({.kind = Kind::kDecodeReport,
          .life = decode_life_,
          .request = {handoff.id, handoff.epoch},
          .number = kFailed});
  } else if (const auto* failure = std::get_if<ReportFailure>(&action)) {
    Emit({.kind = Kind::kDecodeReport,
          .life = decode_life_,
          .request = failure->request,
          .number = kFailed});
  } else if (const auto* drop = std::get_if<DropRequest>(&action)) {
    Job& job = decode_->engine.jobs.at(drop->request);
    if (!job.in_book) return;
    job.end_reported = true;
    Emit({.kind = Kind::kDecodeStep,
          .life = decode_life_,
          .request = drop->request,
          .number = kCancelled});
  } else if (const auto* start = std::get_if<StartRequest>(&action)) {
    BeginInEngine(Kind::kDecodeStep, start->request);
  } else if (const auto* release = std::get_if<ReleaseKv>(&action)) {
    ReleaseTarget(release->request);
  } else {
    Emit({.kind = Kind::kReceiverCall,
          .life = decode_life_,
          .payload = std::make_shared<const Payload>(action)});
  }
}

void HandoffWorld::Activate(const ActivateRequest& action) {
  Job& job = decode_->engine.jobs.at(action.request);
  const SessionKey session(SessionId(action.request.first.value()), action.request.second);
  const auto end = decode_->ends.find(session);
  if (end == decode_->ends.end() || !end->second.ok()) {
    return Violate("a request is activated without its KV");
  }
  const auto token = static_cast<uint64_t>(action.first_tokens.at(0).token);
  if (token / 1000 != action.request.first.value()) {
    return Violate("a request is activated with the first token of another");
  }
  if (job.ended) return;                               // cancelled in the meantime
  job.computed = static_cast<uint32_t>(token % 1000);  // the epoch that computed the prompt
  CheckContent(action.request, job.blocks, job.computed);
  Emit(
      {.kind = Kind::kDecodeStep, .life = decode_life_, .request = action.request, .number = kRun});
}

void HandoffWorld::CheckContent(const RequestKey& key,
                                std::span<const BlockId> blocks,
                                uint32_t prefill_epoch) {
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == kUnowed) continue;
    const uint64_t expected = TagOf(key.first, prefill_epoch, i);
    for (const uint64_t half : target_[blocks[i].value()].halves) {
      if (half != expected) return Violate("a committed block has the bytes of another writer");
    }
  }
}

void HandoffWorld::OnReceiverCallback(const Event& event) {
  switch (event.number) {
    case kOffered:
      decode_->role.OnOffer(event.session, kBlocks * kTokensPerBlock, now_);
      break;
    case kWithdrawn:
      decode_->role.OnWithdrawn(event.session, event.status, now_);
      break;
    case kCommitted:
      decode_->role.OnCommitted(
          event.session, std::get<std::vector<SampledToken>>(*event.payload), {});
      break;
    default:
      decode_->role.OnReleased(event.session, event.status);
      break;
  }
  ActDecode();
}

// ---- the receiver: as KvReceiver::Impl

void HandoffWorld::OnReceiverCall(const DecodeAction& action) {
  if (const auto* grant = std::get_if<GrantOffer>(&action)) return GrantSession(*grant);
  const auto* refuse = std::get_if<RefuseOffer>(&action);
  const SessionKey key =
      refuse != nullptr ? refuse->session : std::get<AbortSession>(action).session;
  Receiving* session = decode_->sessions.Find(key);
  if (session == nullptr) return;
  if (refuse != nullptr) {
    session->machine.Refuse(refuse->reason, now_);
  } else {
    session->machine.Abort(std::get<AbortSession>(action).reason, now_);
  }
  ActReceiver(key);
}

void HandoffWorld::GrantSession(const GrantOffer& action) {
  const SessionKey key = action.session;
  Receiving* session = decode_->sessions.Find(key);
  Status status(StatusCode::kNotFound, "the offer is gone");
  if (session != nullptr) {
    if (session->granted) return Violate("a session is granted twice");
    ReceiverSession::Reservation reservation;
    reservation.grant.window_key = next_key_++;
    reservation.grant.links = groups();
    reservation.state_blocks = state_blocks();
    for (uint32_t group = 0; group < groups(); ++group) {
      reservation.links.push_back({{.cache_group = group}, kPieceBytes});
      std::vector<BlockId>& blocks = reservation.grant.blocks.emplace_back();
      if (owed_.is_state(group)) {
        blocks = action.reservation.state;
        continue;
      }
      for (uint32_t block = owed_.first[group]; block < owed_.count; ++block) {
        blocks.push_back(action.reservation.blocks[block * owed_.block_groups() + group]);
      }
    }
    status = session->machine.Grant(std::move(reservation), now_);
    session->granted = status.ok();
    if (!status.ok()) session->machine.Refuse(status, now_);
  }
  if (!status.ok()) {
    Emit({.kind = Kind::kReceiverCallback,
          .life = decode_life_,
          .session = key,
          .number = kReleased,
          .status = status});
  }
  ActReceiver(key);
}

void HandoffWorld::OnReceiverMessage(const Event& event) {
  if (!decode_->knows_peer) return;
  const auto& message = std::get<ControlMessage>(*event.payload);
  Receiving* session = decode_->sessions.Find(event.session);
  if (session != nullptr) {
    session->machine.OnMessage(message, now_);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    decode_->sessions.Add(event.session, *offer, owed_, kTimes, now_).peer = kPrefillName;
  } else if (const auto answer = AnswerWithoutReceiver(message); answer.has_value()) {
    return Emit({.kind = Kind::kToSender,
                 .session = event.session,
                 .payload = std::make_shared<const Payload>(*answer)});
  }
  ActReceiver(event.session);
}

void HandoffWorld::ActReceiver(const SessionKey& key) {
  Receiving* session = decode_->sessions.Find(key);
  if (session == nullptr) return;
  for (auto actions = session->machine.TakeActions(); !actions.empty();
       actions = session->machine.TakeActions()) {
    for (const ReceiverAction& action : actions) Act(key, *session, action);
  }
  if (session->machine.ended() && !session->ended.has_value()) session->ended = now_;
}

void HandoffWorld::Act(const SessionKey& key, Receiving& session, const ReceiverAction& action) {
  const ReceiverSession& machine = session.machine;
  Event callback{.kind = Kind::kReceiverCallback, .life = decode_life_, .session = key};
  if (const auto* send = std::get_if<SendControl>(&action)) {
    if (!decode_->knows_peer) return;
    Emit({.kind = Kind::kToSender,
          .session = key,
          .payload = std::make_shared<const Payload>(send->message)});
  } else if (std::holds_alternative<ReportOffer>(action)) {
    callback.number = kOffered;
    Emit(std::move(callback));
  } else if (const auto* withdrawn = std::get_if<ReportWithdrawn>(&action)) {
    callback.number = kWithdrawn;
    callback.status = withdrawn->status;
    Emit(std::move(callback));
  } else if (std::holds_alternative<OpenWindows>(action)) {
    decode_->windows[machine.grant().window_key] = key;
    SetWritable(machine, true);
  } else if (std::holds_alternative<CloseWindows>(action)) {
    Emit({.kind = Kind::kCloseWindow,
          .life = decode_life_,
          .session = key,
          .number = machine.grant().window_key});
  } else if (const auto* committed = std::get_if<ReportCommitted>(&action)) {
    ++committed_;
    if (!decode_->ends.emplace(key, OkStatus()).second) Violate("a session ended twice");
    SetWritable(machine, false);
    SampledToken token;
    token.token = static_cast<TokenId>(std::atoll(committed->payload.c_str()));
    std::vector<BlockId> table(size_t{kBlocks} * groups(), kUnowed);
    for (uint32_t group = 0; group < groups(); ++group) {
      for (uint32_t block = owed_.first[group]; block < owed_.count; ++block) {
        table[block * groups() + group] = machine.grant().blocks[group][block - owed_.first[group]];
      }
    }
    CheckContent({RequestId(key.first.value()), key.second},
                 table,
                 static_cast<uint32_t>(token.token % 1000));
    callback.number = kCommitted;
    callback.payload = std::make_shared<const Payload>(std::vector<SampledToken>{std::move(token)});
    Emit(std::move(callback));
  } else if (const auto* released = std::get_if<ReportReleased>(&action)) {
    if (!decode_->ends.emplace(key, released->status).second) Violate("a session ended twice");
    SetWritable(machine, false);
    callback.number = kReleased;
    callback.status = released->status;
    Emit(std::move(callback));
  } else if (std::holds_alternative<ReportQuarantined>(action)) {
    ++quarantined_;
  }
}

void HandoffWorld::SetWritable(const ReceiverSession& machine, bool writable) {
  for (const std::vector<BlockId>& blocks : machine.grant().blocks) {
    for (const BlockId block : blocks) {
      TargetCell& cell = target_[block.value()];
      if (writable && cell.writable) return Violate("a block is granted to two sessions");
      cell.writable = writable;
    }
  }
}

void HandoffWorld::LosePrefill() {
  decode_->knows_peer = false;
  for (const SessionKey& key : decode_->sessions.With(kPrefillName)) {
    decode_->sessions.Find(key)->machine.OnPeerLost(kStreamLost, now_);
    ActReceiver(key);
  }
}

}  // namespace baton
