#include "kvtransfer/handoff/receiver_impl.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/messages/codec.h"

namespace baton {
namespace {

constexpr Duration kLinger = std::chrono::seconds(10);
constexpr size_t kMaxEnded = 1024;

}  // namespace

KvReceiver::Impl::Impl(KvTransferOptions options, KvReceiverListener& listener)
    : core_(std::move(options)),
      listener_(listener),
      receive_rate_(core_.options().transport.receive_bytes_per_second) {}

KvReceiver::Impl::~Impl() {
  core_.Stop();
}

Status KvReceiver::Impl::Start() {
  return core_.Start("kv-receiver", /*listen=*/true, [this](Time now) { return Iteration(now); });
}

Status KvReceiver::Impl::AddPeer(const WorkerId& id, ControlStream* out, const Hello& theirs) {
  BATON_RETURN_IF_ERROR(CheckCompatible(core_.hello(), theirs));
  PeerLinks planned = {.boot = theirs.boot, .sources = ShardsOf(theirs), .links = {}};
  BATON_ASSIGN_OR_RETURN(
      planned.links, PlanLinks(core_.options().layout, planned.sources, ShardsOf(core_.hello())));
  const auto links = std::make_shared<const PeerLinks>(std::move(planned));
  RemovePeer(id);
  core_.streams().Add(id, out);
  core_.loop().PostAlways([this, id, links] { peers_[id] = links; });
  return OkStatus();
}

void KvReceiver::Impl::RemovePeer(const WorkerId& peer) {
  core_.streams().Remove(peer);
  core_.loop().PostAlways([this, peer] { DoRemovePeer(peer); });
}

Status KvReceiver::Impl::OnMessage(const WorkerId& peer, Envelope envelope) {
  return core_.loop().Post(
      [this, peer, envelope = std::move(envelope)] { DoMessage(peer, envelope); });
}

void KvReceiver::Impl::DoRemovePeer(const WorkerId& id) {
  if (peers_.erase(id) == 0) return;
  const Status lost =
      MakeStatus(StatusCode::kUnavailable, "the control stream of worker {} is gone", id);
  for (const SessionKey& key : sessions_.With(id)) {
    sessions_.Find(key)->machine.OnPeerLost(lost, core_.Now());
    Act(key);
  }
}

void KvReceiver::Impl::DoMessage(const WorkerId& peer, const Envelope& envelope) {
  const SessionKey key(envelope.session, envelope.epoch);
  Session* session = sessions_.Find(key);
  if (session == nullptr || session->peer != peer) return AnswerUnknown(peer, envelope);
  session->machine.OnMessage(envelope.message, core_.Now());
  Act(key);
}

void KvReceiver::Impl::AnswerUnknown(const WorkerId& peer, const Envelope& envelope) {
  const SessionKey key(envelope.session, envelope.epoch);
  const ControlMessage& message = envelope.message;
  if (const auto* offer = std::get_if<Offer>(&message)) return DoOffer(peer, key, *offer);
  if (std::holds_alternative<Fail>(message) || std::holds_alternative<DrainAck>(message)) return;
  ++counters_.rejected_messages;
  std::optional<ControlMessage> answer = AnswerWithoutReceiver(message);
  if (answer.has_value()) core_.Send(peer, key, *std::move(answer));
}

void KvReceiver::Impl::DoOffer(const WorkerId& peer, const SessionKey& key, const Offer& offer) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  const size_t live = sessions_.size() - ended_.size();
  if (sessions_.HasLater(key)) {
    ++counters_.rejected_messages;
    const Status old = MakeStatus(StatusCode::kFailedPrecondition,
                                  "session {} has been offered with a later epoch than {}",
                                  key.first,
                                  key.second);
    return core_.Send(peer, key, baton::Refuse{old});
  }
  Status problem;
  if (sessions_.Find(key) != nullptr) {
    problem = MakeStatus(StatusCode::kAlreadyExists,
                         "session {}.{} belongs to another worker",
                         key.first,
                         key.second);
  } else if (live >= core_.options().max_sessions) {
    problem = MakeStatus(StatusCode::kResourceExhausted, "{} KV hand-offs are under way", live);
  } else if (offer.timeout <= Duration{} || offer.total_tokens == 0 ||
             offer.total_tokens > kMaxPromptTokens) {
    problem = InvalidArgument("OFFER has {} tokens and a time-out of {} ms, which is out of range",
                              offer.total_tokens,
                              ToMillis(offer.timeout));
  }
  if (!problem.ok()) {
    ++counters_.refused;
    return core_.Send(peer, key, baton::Refuse{problem});
  }
  const OwedBlocks owed = OwedBlocksOf(core_.options().layout, offer.total_tokens);
  Session& session = sessions_.Add(key, offer, owed, core_.options().times, core_.Now());
  session.peer = peer;
  session.links = known->second;
  Act(key);
}

Status KvReceiver::Impl::CheckBlocks(std::span<const BlockId> blocks) const {
  BATON_RETURN_IF_ERROR(core_.CheckBlocks(blocks));
  std::vector<BlockId> sorted(blocks.begin(), blocks.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return OkStatus();
  return InvalidArgument("block {} is granted twice", *twice);
}

StatusOr<ReceiverSession::Reservation> KvReceiver::Impl::Reserve(
    const Session& session,
    uint32_t cached_blocks,
    std::span<const BlockId> table,
    std::span<const BlockId> state) const {
  const OwedBlocks& owed = session.machine.owed();
  const size_t cache_groups = owed.block_groups();
  if (table.size() != owed.count * cache_groups || cached_blocks > owed.count) {
    return InvalidArgument(
        "{} blocks are granted, with {} cached; the prompt has {} in each of {} cache groups",
        table.size(),
        cached_blocks,
        owed.count,
        cache_groups);
  }
  const bool all_cached = cached_blocks == owed.count;
  if (state.size() != core_.state_blocks() && !(all_cached && state.empty())) {
    return InvalidArgument(
        "{} blocks of a state are granted; it has {}", state.size(), core_.state_blocks());
  }
  std::vector<BlockId> held(state.begin(), state.end());
  ReceiverSession::Reservation reservation;
  reservation.grant = {.window_key = RandomId(),
                       .cached_blocks = cached_blocks,
                       .checksums = core_.options().checksums,
                       .links = static_cast<uint32_t>(session.links->links.size()),
                       // Each sender paces alone, so each gets its share.
                       .bytes_per_second = receive_rate_ / std::max<size_t>(1, peers_.size())};
  for (uint32_t group = 0; group < cache_groups; ++group) {
    std::vector<BlockId>& granted = reservation.grant.blocks.emplace_back();
    for (uint32_t block = owed.first[group]; block < owed.count; ++block) {
      held.push_back(table[block * cache_groups + group]);
      if (block >= cached_blocks) granted.push_back(held.back());
    }
  }
  if (owed.state) {
    std::vector<BlockId>& granted = reservation.grant.blocks.emplace_back();
    if (!all_cached) granted.assign(state.begin(), state.end());
  }
  reservation.state_blocks = core_.state_blocks();
  BATON_RETURN_IF_ERROR(CheckBlocks(held));
  for (const KvLink& link : session.links->links) {
    reservation.links.push_back({GroupsOf(link), LinkBlockBytes(core_.options().layout, link)});
  }
  return reservation;
}

void KvReceiver::Impl::DoGrant(const SessionKey& key,
                               uint32_t cached_blocks,
                               std::span<const BlockId> blocks,
                               std::span<const BlockId> state) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) {
    return listener_.OnReleased(
        key.first, key.second, MakeStatus(StatusCode::kNotFound, "the offer is gone"));
  }
  if (session->granted) {
    return core_.Log(
        fmt::format("session {}.{}: the worker granted it twice; the second grant is ignored",
                    key.first,
                    key.second));
  }
  StatusOr<ReceiverSession::Reservation> reservation =
      Reserve(*session, cached_blocks, blocks, state);
  Status status = reservation.status();
  if (status.ok()) status = session->machine.Grant(*std::move(reservation), core_.Now());
  if (!status.ok()) {
    session->machine.Refuse(status, core_.Now());
    listener_.OnReleased(key.first, key.second, status);
  } else {
    session->granted = true;
  }
  Act(key);
}

void KvReceiver::Impl::DoRefuse(const SessionKey& key, Status reason) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.Refuse(std::move(reason), core_.Now());
  Act(key);
}

void KvReceiver::Impl::DoSetReceiveRate(uint64_t bytes_per_second) {
  receive_rate_ = bytes_per_second;
  core_.data_plane().SetReceiveRate(bytes_per_second);
}

void KvReceiver::Impl::DoAbort(const SessionKey& key, Status reason) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.Abort(std::move(reason), core_.Now());
  Act(key);
}

void KvReceiver::Impl::OnArrival(const SessionKey& key,
                                 const PieceArrival& piece,
                                 std::string_view transport,
                                 bool polls_for_seal) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  const Time now = core_.Now();
  counters_.bytes += piece.bytes;
  ++counters_.ops;
  PeerTransferStats& peer = counters_.by_peer[session->peer];
  peer.transport = transport;
  ++peer.writes;
  session->stats.transport = transport;
  session->stats.bytes += piece.bytes;
  session->stats.stream = now - session->granted_at;
  session->machine.OnArrival(piece, now);
  if (polls_for_seal && session->machine.lacks_only_seal()) {
    listener_.OnSealDue(core_.AwaitSeal(now));
  }
  Act(key);
}

void KvReceiver::Impl::OnNote(const SessionKey& key, std::string_view note) {
  core_.ForgetSeal();
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  const Status taken = TakeNote(key, *session, note);
  if (!taken.ok()) session->machine.Abort(taken, core_.Now());
  Act(key);
}

Status KvReceiver::Impl::TakeNote(const SessionKey& key, Session& session, std::string_view note) {
  BATON_ASSIGN_OR_RETURN(const Envelope envelope, DecodeEnvelope(note));
  if (SessionKey(envelope.session, envelope.epoch) != key ||
      !std::holds_alternative<Seal>(envelope.message)) {
    return InvalidArgument(
        "{} of session {}.{} came as a note; a note can only be the SEAL of its window's session "
        "{}.{}",
        Name(envelope.message),
        envelope.session,
        envelope.epoch,
        key.first,
        key.second);
  }
  session.machine.OnMessage(envelope.message, core_.Now());
  return OkStatus();
}

void KvReceiver::Impl::OnWindowsClosed(const SessionKey& key, const Status& status) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.OnWindowsClosed(status, core_.Now());
  Act(key);
}

void KvReceiver::Impl::Act(const SessionKey& key) {
  while (Session* session = sessions_.Find(key)) {
    const uint32_t damaged = session->machine.damaged_blocks();
    const uint32_t more_damaged = damaged - session->stats.resent_blocks;
    counters_.checksum_errors += more_damaged;
    if (more_damaged > 0) counters_.by_peer[session->peer].checksum_errors += more_damaged;
    session->stats.resent_blocks = damaged;
    std::vector<ReceiverAction> actions = session->machine.TakeActions();
    if (actions.empty()) return;
    const ReceiverState state = session->machine.state();
    for (ReceiverAction& action : actions) Act(key, *session, action);
    if (core_.options().on_state) core_.options().on_state(Name(state));
  }
}

void KvReceiver::Impl::Act(const SessionKey& key, Session& session, ReceiverAction& action) {
  if (auto* send = std::get_if<SendControl>(&action)) {
    core_.Send(session.peer, key, std::move(send->message));
  } else if (auto* offer = std::get_if<ReportOffer>(&action)) {
    listener_.OnOffer(session.peer, key.first, key.second, offer->offer);
  } else if (std::holds_alternative<ReportRefused>(action)) {
    ++counters_.refused;
    ended_.push_back({key, core_.Now()});
  } else if (auto* withdrawn = std::get_if<ReportWithdrawn>(&action)) {
    End(key, session, withdrawn->status);
    listener_.OnWithdrawn(key.first, key.second, withdrawn->status);
  } else if (std::holds_alternative<OpenWindows>(action)) {
    const Status opened = Open(key, session);
    if (!opened.ok()) session.machine.Abort(opened, core_.Now());
  } else if (std::holds_alternative<CloseWindows>(action)) {
    core_.data_plane().CloseWindows(key);
  } else if (auto* committed = std::get_if<ReportCommitted>(&action)) {
    Commit(key, session, committed->payload);
  } else if (auto* released = std::get_if<ReportReleased>(&action)) {
    End(key, session, released->status);
    listener_.OnReleased(key.first, key.second, released->status);
  } else if (std::holds_alternative<ReportQuarantined>(action)) {
    core_.Log(
        fmt::format("session {}.{}: late writes of worker {} cannot be ruled out; {} blocks stay "
                    "in quarantine",
                    key.first,
                    key.second,
                    session.peer,
                    session.machine.granted_blocks()));
  }
}

Status KvReceiver::Impl::Open(const SessionKey& key, Session& session) {
  const baton::Grant& grant = session.machine.grant();
  session.granted_at = core_.Now();
  session.stats.wait = session.granted_at - session.offered;
  session.stats.cached_blocks = grant.cached_blocks;
  session.stats.blocks = session.machine.granted_blocks();
  return core_.data_plane().OpenWindows(key, {grant.window_key, grant.blocks, session.links});
}

void KvReceiver::Impl::End(const SessionKey& key, const Session& session, const Status& status) {
  ended_.push_back({key, core_.Now()});
  if (IsCancelled(status)) {
    ++counters_.cancelled;
    return;
  }
  ++counters_.failed;
  core_.Log(fmt::format("session {}.{} from worker {} failed: {}",
                        key.first,
                        key.second,
                        session.peer,
                        Message(status)));
}

void KvReceiver::Impl::Commit(const SessionKey& key, Session& session, const std::string& payload) {
  ++counters_.finished;
  ended_.push_back({key, core_.Now()});
  session.stats.total = core_.Now() - session.offered;
  if (session.stats.stream > Duration{}) {
    session.stats.bytes_per_second =
        static_cast<double>(session.stats.bytes) / ToSeconds(session.stats.stream);
  }
  listener_.OnCommitted(key.first, key.second, payload, session.stats);
}

void KvReceiver::Impl::ForgetOld(Time now) {
  while (!ended_.empty() && (ended_.size() > kMaxEnded || now - ended_.front().ended > kLinger)) {
    sessions_.Erase(ended_.front().key);
    ended_.pop_front();
  }
}

Time KvReceiver::Impl::Iteration(Time now) {
  core_.data_plane().Poll(now, *this);
  const bool tick = core_.Tick(now);
  if (tick) {
    for (const SessionKey& key : sessions_.Due(now)) {
      sessions_.Find(key)->machine.OnTime(now);
      Act(key);
    }
  }
  ForgetOld(now);  // not only at a tick: hundreds of sessions may end between two
  const bool idle = sessions_.size() == ended_.size();
  if (tick || idle) PublishStats();
  if (core_.expects_seal(now)) return now;
  return idle ? kNever : core_.next_tick();
}

void KvReceiver::Impl::PublishStats() {
  KvTransferStats stats = counters_;
  stats.peers = static_cast<uint32_t>(peers_.size());
  const Time now = core_.Now();
  for (const auto& [key, session] : sessions_) {
    if (session.machine.ended()) continue;
    PeerTransferStats& peer = stats.by_peer[session.peer];
    ++peer.open;
    peer.oldest = std::max(peer.oldest, now - session.offered);
    switch (session.machine.state()) {
      case ReceiverState::kPending:
        ++stats.offered;
        break;
      case ReceiverState::kReceiving:
      case ReceiverState::kClosing:
        ++stats.streaming;
        break;
      case ReceiverState::kDraining:
        ++stats.draining;
        break;
      case ReceiverState::kQuarantined:
        ++stats.quarantined;
        stats.quarantined_blocks += session.machine.granted_blocks();
        peer.quarantined_blocks += session.machine.granted_blocks();
        break;
      default:
        break;
    }
  }
  core_.Publish(std::move(stats));
}

}  // namespace baton
