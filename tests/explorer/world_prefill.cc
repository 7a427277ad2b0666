// The prefill worker of HandoffWorld.
#include <algorithm>
#include <utility>

#include "common/base/overloaded.h"
#include "tests/explorer/handoff_world.h"
#include "tests/explorer/world_constants.h"

namespace baton {
namespace {

const WorkerId kDecodeName("decode");
const Status kCancelledStatus(StatusCode::kCancelled, "cancelled");
const Status kStepFailed(StatusCode::kInternal, "the step failed");
const Status kStreamLost(StatusCode::kUnavailable, "the stream ended");
const Status kWriteLost(StatusCode::kUnavailable, "the write is lost");

}  // namespace

// ---- the process and its engine

void HandoffWorld::CrashPrefill() {
  ++prefill_life_;
  prefill_.emplace(PrefillHandoffs::Limits{.redirect_wait = kRoleWait, .handoff = kHandoffLimit});
  for (uint32_t block = 0; block < source_.size(); ++block) {
    source_[block] = {};
    prefill_->engine.free.push_back(BlockId(block));
  }
  for (auto& [id, write] : writes_) write.in_network = true;
}

void HandoffWorld::OnPrefillCommand(const WorkerCommand& command) {
  if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
    const RequestKey key(dispatch->request.id, dispatch->request.epoch);
    const Status status = prefill_->role.OnDispatch(kRouter, *dispatch);
    if (status.ok()) {
      prefill_->engine.jobs[key] = {std::make_shared<const Request>(dispatch->request)};
      if (!dispatch->request.peer_first) {
        BeginInEngine(Kind::kPrefillStep, key);
      }
    } else {
      Violate("the router dispatched an attempt twice");
    }
  } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
    const RequestKey key(cancel->id, cancel->epoch);
    Emit({.kind = Kind::kPrefillStep, .life = prefill_life_, .request = key, .number = kCancelled});
    prefill_->role.OnCancel(kRouter, key);
  } else if (const auto* redirect = std::get_if<RedirectCommand>(&command)) {
    prefill_->role.OnRedirect(kRouter, *redirect);
  }
  ActPrefill();
}

void HandoffWorld::OnPrefillStep(const Event& event, Deviation deviation) {
  const auto found = prefill_->engine.jobs.find(event.request);
  if (found == prefill_->engine.jobs.end() || found->second.ended) return;
  Job& job = found->second;
  if (event.number == kCancelled) return EndPrefill(event.request, kCancelledStatus);
  if (deviation == Deviation::kDamage) return EndPrefill(event.request, kStepFailed);
  if (job.computed == kBlocks) return EndPrefill(event.request, OkStatus());
  Engine& engine = prefill_->engine;
  if (job.blocks.empty()) {
    const std::vector<uint32_t> entries = OwedEntries();
    if (engine.free.size() < entries.size()) return engine.waiting.push_back(event.request);
    job.blocks.assign(size_t{kBlocks} * groups(), kUnowed);
    for (const uint32_t entry : entries) {
      job.blocks[entry] = engine.free.back();
      engine.free.pop_back();
    }
    Emit({.kind = Kind::kPrefillEvent,
          .life = prefill_life_,
          .request = event.request,
          .number = kStarted});
  }
  const auto& [id, epoch] = event.request;
  for (uint32_t entry = job.computed * groups(); entry < (job.computed + 1) * groups(); ++entry) {
    const BlockId block = job.blocks[entry];
    if (block == kUnowed) continue;
    source_[block.value()] = {TagOf(id, epoch.value(), entry), event.request};
  }
  job.leased = true;
  Emit({.kind = Kind::kPrefillEvent,
        .life = prefill_life_,
        .request = event.request,
        .number = kChunk + job.computed});
  ++job.computed;
  Emit({.kind = Kind::kPrefillStep,
        .life = prefill_life_,
        .request = event.request,
        .number = kCompute});
}

void HandoffWorld::EndPrefill(const RequestKey& key, const Status& status) {
  Job& job = prefill_->engine.jobs.at(key);
  job.ended = true;
  if (!job.leased) FreeSources(job);
  Emit({.kind = Kind::kPrefillEvent,
        .life = prefill_life_,
        .request = key,
        .number = kEnded,
        .status = status});
}

void HandoffWorld::OnPrefillEvent(const Event& event) {
  const auto& [id, epoch] = event.request;
  Job& job = prefill_->engine.jobs.at(event.request);
  if (event.number >= kChunk) {
    const auto index = static_cast<uint32_t>(event.number - kChunk);
    const bool last = index + 1 == kBlocks;
    const auto entries = std::span<const BlockId>(job.blocks).subspan(size_t{index} * groups());
    prefill_->role.OnChunk(
        {.id = id,
         .epoch = epoch,
         .first_index = static_cast<int32_t>(index),
         .groups = static_cast<int32_t>(owed_.block_groups()),
         .blocks = entries.first(owed_.block_groups()),
         .state = entries.subspan(owed_.block_groups(), last ? state_blocks() : 0),
         .last = last},
        now_);
    return ActPrefill();
  }
  if (event.number == kStarted) {
    prefill_->role.OnStarted(event.request, now_);
    return ActPrefill();
  }
  job.in_book = false;
  if (event.status.ok()) {
    TokenOutput token;
    token.id = id;
    token.epoch = epoch;
    token.token.token = FirstTokenOf(id, epoch);
    token.finish = FinishReason::kHandedOff;
    prefill_->role.OnToken(token);
  }
  prefill_->role.OnEnded(event.request, event.status);
  ActPrefill();
  if (!event.status.ok() && !job.end_reported) {
    Emit({.kind = Kind::kPrefillReport,
          .life = prefill_life_,
          .request = event.request,
          .number = kFailed});
  }
}

void HandoffWorld::ReleaseSource(const RequestKey& key) {
  const auto found = prefill_->engine.jobs.find(key);
  if (found == prefill_->engine.jobs.end() || !std::exchange(found->second.leased, false)) {
    return Violate("the prefill worker releases blocks without a lease");
  }
  if (!found->second.ended) return Violate("blocks are released before they are computed");
  FreeSources(found->second);
}

void HandoffWorld::FreeSources(Job& job) {
  Engine& engine = prefill_->engine;
  for (const BlockId block : job.blocks) {
    if (block == kUnowed) continue;
    source_[block.value()] = {};
    if (std::ranges::find(engine.free, block) != engine.free.end()) Violate("freed twice");
    engine.free.push_back(block);
  }
  for (; !engine.waiting.empty(); engine.waiting.pop_front()) {
    Emit({.kind = Kind::kPrefillStep,
          .life = prefill_life_,
          .request = engine.waiting.front(),
          .number = kCompute});
  }
}

// ---- the role

void HandoffWorld::ActPrefill() {
  for (auto actions = prefill_->role.TakeActions(); !actions.empty();
       actions = prefill_->role.TakeActions()) {
    for (const PrefillAction& action : actions) Act(action);
  }
}

void HandoffWorld::Act(const PrefillAction& action) {
  if (std::holds_alternative<ConnectPeer>(action)) {
    if (prefill_->connected) {
      return prefill_->role.OnPeerSettled(kDecodeName, OkStatus(), now_);
    }
    if (!std::exchange(prefill_->dialling, true)) {
      Emit({.kind = Kind::kDial, .life = prefill_life_});
    }
  } else if (const auto* report = std::get_if<ReportHandoff>(&action)) {
    const HandoffReport& handoff = report->report;
    if (handoff.outcome == HandoffReport::Outcome::kCommitted ||
        handoff.outcome == HandoffReport::Outcome::kNotNeeded) {
      return;
    }
    const bool refused = handoff.outcome == HandoffReport::Outcome::kRefused;
    Emit({.kind = Kind::kPrefillReport,
          .life = prefill_life_,
          .request = {handoff.id, handoff.epoch},
          .number = refused ? kRefused : kFailed});
  } else if (const auto* failure = std::get_if<ReportFailure>(&action)) {
    Emit({.kind = Kind::kPrefillReport,
          .life = prefill_life_,
          .request = failure->request,
          .number = kFailed});
  } else if (const auto* drop = std::get_if<DropRequest>(&action)) {
    Job& job = prefill_->engine.jobs.at(drop->request);
    if (!job.in_book) return;
    job.end_reported = true;
    Emit({.kind = Kind::kPrefillStep,
          .life = prefill_life_,
          .request = drop->request,
          .number = kCancelled});
  } else if (const auto* start = std::get_if<StartRequest>(&action)) {
    BeginInEngine(Kind::kPrefillStep, start->request);
  } else if (const auto* release = std::get_if<ReleaseKv>(&action)) {
    ReleaseSource(release->request);
  } else {
    Emit({.kind = Kind::kSenderCall,
          .life = prefill_life_,
          .payload = std::make_shared<const Payload>(action)});
  }
}

void HandoffWorld::OnSenderCallback(const Event& event) {
  if (event.number == kGranted) {
    prefill_->role.OnGranted(event.session);
  } else if (event.number == kRefused) {
    prefill_->role.OnRefused(event.session, event.status, now_);
  } else {
    prefill_->role.OnFinished(event.session, event.status, {}, now_);
  }
  ActPrefill();
}

void HandoffWorld::OnDial() {
  prefill_->dialling = false;
  prefill_->connected = true;
  ++stream_;
  LosePrefill();  // HELLO of a new stream ends the sessions of the old one
  decode_->knows_peer = true;
  prefill_->role.OnPeerSettled(kDecodeName, OkStatus(), now_);
  ActPrefill();
}

// ---- the sender: as KvSender::Impl

void HandoffWorld::OnSenderCall(const PrefillAction& action) {
  if (const auto* offer = std::get_if<OfferKv>(&action)) return OfferSession(*offer);
  const SessionKey key =
      std::visit(Overloaded{[](const SendBlocks& send) { return send.session; },
                            [](const SealKv& seal) { return seal.session; },
                            [](const AbortSession& abort) { return abort.session; },
                            [](const auto&) { return SessionKey(); }},
                 action);
  Sending* session = prefill_->sessions.Find(key);
  if (session == nullptr) return;
  if (const auto* send = std::get_if<SendBlocks>(&action)) {
    const Status added =
        session->machine.AddBlocks({send->first_index, send->blocks, 1, send->state}, now_);
    if (!added.ok()) Violate("blocks do not fit their session");
  } else if (const auto* seal = std::get_if<SealKv>(&action)) {
    session->machine.Seal(std::to_string(seal->first_tokens.at(0).token), now_);
  } else {
    session->machine.Abort(std::get<AbortSession>(action).reason, now_);
  }
  ActSender(key);
}

void HandoffWorld::OfferSession(const OfferKv& action) {
  const SessionKey key(action.offer.session, action.offer.epoch);
  Sending* session = prefill_->sessions.Find(key);
  if (session != nullptr && session->machine.state() != SenderState::kRefused) return;
  if (session == nullptr) {
    SenderSession::Params params;
    params.total_tokens = action.offer.total_tokens;
    params.owed = owed_;
    params.state_blocks = state_blocks();
    params.timeout = action.offer.timeout;
    session = &prefill_->sessions.Add(key, params, kTimes, now_);
    session->peer = kDecodeName;
  } else {
    session->machine.OfferAgain(action.offer.timeout, now_);
  }
  if (!prefill_->connected) {
    (void)session->machine.TakeActions();
    session->machine.OnPeerLost(kStreamLost, now_);
  }
  ActSender(key);
}

void HandoffWorld::OnSenderMessage(const Event& event) {
  if (!prefill_->connected) return;
  const auto& message = std::get<ControlMessage>(*event.payload);
  Sending* session = prefill_->sessions.Find(event.session);
  if (session == nullptr) {
    const std::optional<ControlMessage> answer = AnswerWithoutSender(message);
    if (answer.has_value()) {
      Emit({.kind = Kind::kToReceiver,
            .session = event.session,
            .payload = std::make_shared<const Payload>(*answer)});
    }
    return;
  }
  if (std::holds_alternative<baton::Grant>(message)) {
    std::vector<LinkGroups> links;
    for (uint32_t group = 0; group < groups(); ++group) links.push_back({.cache_group = group});
    session->machine.SetLinks(std::move(links), state_blocks());
  }
  session->machine.OnMessage(message, now_);
  ActSender(event.session);
}

void HandoffWorld::ActSender(const SessionKey& key) {
  while (Sending* session = prefill_->sessions.Find(key)) {
    const std::vector<SenderAction> actions = session->machine.TakeActions();
    if (actions.empty()) return;
    for (const SenderAction& action : actions) {
      session = prefill_->sessions.Find(key);
      if (session == nullptr) return;
      Act(key, *session, action);
    }
  }
}

void HandoffWorld::Act(const SessionKey& key, Sending& session, const SenderAction& action) {
  if (const auto* send = std::get_if<SendControl>(&action)) {
    if (!prefill_->connected) return;
    Emit({.kind = Kind::kToReceiver,
          .session = key,
          .payload = std::make_shared<const Payload>(send->message)});
  } else if (const auto* post = std::get_if<PostBlocks>(&action)) {
    if (!prefill_->connected) return session.machine.OnWriteLost(post->pieces, kStreamLost, now_);
    Post(key, session.machine, *post);
  } else if (std::holds_alternative<StopWrites>(action)) {
    Emit({.kind = Kind::kStopWrites, .life = prefill_life_, .session = key});
  } else if (std::holds_alternative<FenceWrites>(action)) {
    Emit({.kind = Kind::kFenceWrites, .life = prefill_life_, .session = key});
  } else if (std::holds_alternative<ReportGranted>(action)) {
    Emit(
        {.kind = Kind::kSenderCallback, .life = prefill_life_, .session = key, .number = kGranted});
  } else if (const auto* refused = std::get_if<ReportRefused>(&action)) {
    Emit({.kind = Kind::kSenderCallback,
          .life = prefill_life_,
          .session = key,
          .number = kRefused,
          .status = refused->status});
  } else if (std::holds_alternative<ReportQuarantined>(action)) {
    ++quarantined_;
  } else if (const auto* end = std::get_if<ReportEnd>(&action)) {
    for (const auto& [id, write] : writes_) {
      if (write.session == key && !write.in_network) Violate("a session ended with writes");
    }
    const Status status = end->status;
    prefill_->sessions.Erase(key);
    Emit({.kind = Kind::kSenderCallback,
          .life = prefill_life_,
          .session = key,
          .number = kFinished,
          .status = status});
  }
}

void HandoffWorld::Post(const SessionKey& key, SenderSession& machine, const PostBlocks& post) {
  for (const uint32_t block : post.blocks) {
    const BlockPair pair =
        owed_.is_state(post.cache_group)
            ? BlockPair{machine.state_blocks()[0], machine.grant().blocks[post.cache_group][0]}
            : machine.pair(block, post.cache_group);
    if (pair.source == kUnowed) return Violate("a block is sent that is not owed");
    const SourceCell& cell = source_[pair.source.value()];
    if (!cell.owner.has_value() || cell.owner->first.value() != key.first.value()) {
      return Violate("a freed source is sent");
    }
    const uint64_t id = next_write_++;
    writes_[id] = {key,
                   machine.grant().window_key,
                   post.cache_group,
                   block,
                   pair.source,
                   pair.destination,
                   cell.value};
    const uint64_t checksum = cell.value;
    Emit({.kind = Kind::kWrite, .life = prefill_life_, .session = key, .number = id});
    machine.OnPosted(post.cache_group, block, {&checksum, 1}, kPieceBytes, now_);
  }
}

void HandoffWorld::LoseDecode() {
  prefill_->connected = false;
  std::vector<SessionKey> keys = prefill_->sessions.With(kDecodeName);
  for (const SessionKey& key : keys) {
    if (Sending* session = prefill_->sessions.Find(key)) {
      session->machine.OnPeerLost(kStreamLost, now_);
      ActSender(key);
    }
    Emit({.kind = Kind::kFenceWrites, .life = prefill_life_, .session = key});
  }
}

void HandoffWorld::EndWrite(uint64_t id, bool done) {
  const auto found = writes_.find(id);
  if (found == writes_.end()) return;
  const Write write = found->second;
  writes_.erase(found);
  if (write.in_network) return;
  Sending* session = prefill_->sessions.Find(write.session);
  if (session == nullptr) return;
  if (done) {
    session->machine.OnWritten(1, kPieceBytes, now_);
  } else {
    session->machine.OnWriteLost(1, kWriteLost, now_);
  }
  ActSender(write.session);
}

void HandoffWorld::EndWritesOf(const SessionKey& session) {
  std::vector<uint64_t> ids;
  for (const auto& [id, write] : writes_) {
    if (write.session == session && !write.in_network) ids.push_back(id);
  }
  for (const uint64_t id : ids) EndWrite(id, false);
}

}  // namespace baton
