#include "kvtransfer/handoff/sender_impl.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/messages/codec.h"

namespace baton {
namespace {

// What each unit of layers costs besides its bytes: a write, its acknowledgement and two wake-ups.
constexpr double kUnitSeconds = 100e-6;

Status CheckOffer(const OfferRequest& request, uint32_t max_tokens) {
  if (request.total_tokens == 0 || request.total_tokens > max_tokens) {
    return InvalidArgument(
        "offer of {} tokens; 1 to {} are allowed", request.total_tokens, max_tokens);
  }
  if (request.timeout <= Duration{}) {
    return MakeStatus(
        StatusCode::kDeadlineExceeded, "offer with a time-out of {} ms", ToMillis(request.timeout));
  }
  return OkStatus();
}

std::vector<uint64_t> BlockBytesOf(const KvLayout& layout) {
  std::vector<uint64_t> bytes;
  for (uint32_t group = 0; group < layout.groups.size(); ++group) {
    const KvPart all{0, layout.layers(), 0, layout.sharded_heads(), true};
    bytes.push_back(LinkBlockBytes(layout, {.cache_group = group, .part = all}));
  }
  return bytes;
}

Status CheckGrant(const Grant& grant, std::span<const KvShardInfo> shards, size_t links) {
  if (grant.links != links) {
    return InvalidArgument("GRANT expects {} links; there are {} to this peer", grant.links, links);
  }
  for (const KvShardInfo& shard : shards) {
    for (const std::vector<BlockId>& blocks : grant.blocks) {
      const auto block =
          std::ranges::find_if(blocks, [&](BlockId id) { return !id.InArena(shard.block_count); });
      if (block == blocks.end()) continue;
      return InvalidArgument("GRANT names block {} of {}", *block, shard.block_count);
    }
  }
  return OkStatus();
}

}  // namespace

KvSender::Impl::Impl(KvTransferOptions options, KvSenderListener& listener)
    : core_(std::move(options)),
      listener_(listener),
      block_bytes_(BlockBytesOf(core_.options().layout)) {}

KvSender::Impl::~Impl() {
  core_.Stop();
  peers_.clear();
  departing_.clear();
}

Status KvSender::Impl::Start() {
  return core_.Start("kv-sender", /*listen=*/false, [this](Time now) { return Iteration(now); });
}

Status KvSender::Impl::AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs) {
  BATON_RETURN_IF_ERROR(CheckCompatible(core_.hello(), theirs));
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<PeerWriter> added, core_.data_plane().NewWriter(theirs));
  RemovePeer(peer);
  core_.streams().Add(peer, out);
  // std::function requires copyable captures.
  auto writer = std::make_shared<std::unique_ptr<PeerWriter>>(std::move(added));
  core_.loop().PostAlways([this, peer, theirs, writer] {
    const uint64_t op_bytes = (*writer)->op_bytes();
    DoAddPeer(peer,
              {.writer = std::move(*writer),
               .link = LinkWatch(op_bytes),
               .shards = theirs.shards,
               .state_blocks = StateBlocksOf(theirs)});
  });
  return OkStatus();
}

void KvSender::Impl::RemovePeer(const WorkerId& peer) {
  core_.streams().Remove(peer);
  core_.loop().PostAlways([this, peer] { DoRemovePeer(peer); });
}

Status KvSender::Impl::OnMessage(const WorkerId& peer, Envelope envelope) {
  return core_.loop().Post(
      [this, peer, envelope = std::move(envelope)] { DoMessage(peer, envelope); });
}

void KvSender::Impl::DoAddPeer(const WorkerId& id, Peer peer) {
  // Connects now, so that the first hand-off need not wait for it. That hand-off reports an error
  // again.
  const Status connected = peer.writer->Connect();
  if (!connected.ok()) core_.Log(fmt::format("worker {}: {}", id, Message(connected)));
  PeerTransferStats& stats = counters_.by_peer[id];
  stats.transport = peer.writer->transport_name();
  stats.not_taken = peer.writer->not_taken();
  if (!stats.not_taken.empty()) {
    core_.Log(fmt::format(
        "worker {}: KV goes over {}; not taken: {}", id, stats.transport, stats.not_taken));
  }
  peers_.insert_or_assign(id, std::move(peer));
}

void KvSender::Impl::DoRemovePeer(const WorkerId& id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  const Status lost =
      MakeStatus(StatusCode::kUnavailable, "the control stream of worker {} is gone", id);
  for (const SessionKey& key : sessions_.With(id)) {
    Session& session = *sessions_.Find(key);
    NoteIdle(session);
    session.machine.OnPeerLost(lost, core_.Now());
    Act(key);
  }
  PeerTransferStats& stats = counters_.by_peer[id];
  stats.writes += found->second.writer->ops();
  if (!found->second.writer->idle()) ++stats.fences;
  found->second.writer->FenceAll();
  departing_.push_back(std::move(found->second.writer));
  peers_.erase(found);
}

void KvSender::Impl::DoBye(const WorkerId& peer) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) found->second.leaving = true;
}

void KvSender::Impl::DoOffer(OfferRequest request) {
  const SessionKey key(request.session, request.epoch);
  Session* session = sessions_.Find(key);
  if (session != nullptr && session->machine.state() != SenderState::kRefused) return;
  Status valid = CheckOffer(request, kMaxPromptTokens);
  if (valid.ok() && session == nullptr && sessions_.size() >= core_.options().max_sessions) {
    valid = MakeStatus(
        StatusCode::kResourceExhausted, "{} KV hand-offs are under way", sessions_.size());
  }
  if (!valid.ok()) {
    if (session == nullptr) {
      ++counters_.failed;
      return listener_.OnFinished(key.first, key.second, valid, {});
    }
    return listener_.OnRefused(key.first, key.second, valid);
  }
  if (session == nullptr) {
    SenderSession::Params params;
    params.total_tokens = request.total_tokens;
    params.owed = OwedBlocksOf(core_.options().layout, request.total_tokens);
    params.timeout = request.timeout;
    params.layer_groups = static_cast<uint32_t>(core_.options().layout.layer_groups());
    params.state_blocks = core_.state_blocks();
    session = &sessions_.Add(key, params, core_.options().times, core_.Now());
  } else {
    session->machine.OfferAgain(request.timeout, core_.Now());
  }
  session->peer = request.peer;
  const auto peer = peers_.find(request.peer);
  if (peer == peers_.end() || peer->second.leaving) {
    (void)session->machine.TakeActions();  // drops the OFFER, which must not be sent
    session->machine.OnPeerLost(
        MakeStatus(StatusCode::kUnavailable,
                   "worker {} {}",
                   request.peer,
                   peer == peers_.end() ? "is not connected" : "is leaving"),
        core_.Now());
  }
  Act(key);
}

void KvSender::Impl::DoChunk(const SessionKey& key,
                             uint32_t first,
                             const std::vector<BlockId>& blocks,
                             const std::vector<BlockId>& state,
                             int32_t layers) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  Status known = core_.CheckBlocks(blocks);
  known.Update(core_.CheckBlocks(state));
  if (!known.ok()) return DoAbort(key, known);
  const size_t prompt_blocks =
      blocks.size() / static_cast<size_t>(core_.options().layout.block_groups());
  compute_.OnLayers(key, first, prompt_blocks, layers, core_.Now());
  layers = LayersToSend(*session, prompt_blocks, layers);
  const auto groups = std::ranges::count_if(core_.options().layout.layer_group_ends,
                                            [&](int32_t end) { return end <= layers; });
  const Status added = session->machine.AddBlocks(
      {first, blocks, static_cast<uint32_t>(groups), state}, core_.Now());
  if (!added.ok()) session->machine.Abort(added, core_.Now());
  Act(key);
}

int32_t KvSender::Impl::LayersToSend(const Session& session, size_t blocks, int32_t layers) {
  const KvLayout& layout = core_.options().layout;
  const PeerWriter* writer = Writer(session.peer);
  if (layers >= layout.layers() || writer == nullptr || writer->prefers_bursts()) return layers;
  const double group_seconds = ToSeconds(writer->GroupTime());
  if (group_seconds == 0 || compute_.seconds_per_layer() == 0) return layers;
  const auto count = static_cast<double>(blocks);
  ChunkCosts costs;
  costs.compute_seconds = count * compute_.seconds_per_layer();
  costs.send_seconds = count * group_seconds * layout.layer_groups() / layout.layers();
  costs.unit_seconds = kUnitSeconds;
  int32_t sent = 0;
  for (const int32_t end : ChooseUnits(layout.layer_group_ends, costs)) {
    if (end <= layers) sent = end;
  }
  return sent;
}

void KvSender::Impl::DoSeal(const SessionKey& key, std::string payload, Duration patience) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  if (payload.size() > kMaxPayloadBytes) {
    return DoAbort(key,
                   InvalidArgument("a SEAL payload of {} bytes; at most {} are allowed",
                                   payload.size(),
                                   kMaxPayloadBytes));
  }
  core_.ForgetSeal();
  session->patience = patience;
  session->machine.Seal(std::move(payload), core_.Now());
  Act(key);
}

void KvSender::Impl::DoAbort(const SessionKey& key, Status reason) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.Abort(std::move(reason), core_.Now());
  Act(key);
}

void KvSender::Impl::DoMessage(const WorkerId& peer, const Envelope& envelope) {
  if (std::holds_alternative<Bye>(envelope.message)) return DoBye(peer);
  const SessionKey key(envelope.session, envelope.epoch);
  Session* session = sessions_.Find(key);
  if (session == nullptr || session->peer != peer) return AnswerUnknown(peer, envelope);
  if (std::holds_alternative<Grant>(envelope.message) &&
      session->machine.state() == SenderState::kOffered) {
    DoGrant(key, *session, envelope);
  } else {
    session->machine.OnMessage(envelope.message, core_.Now());
  }
  Act(key);
}

void KvSender::Impl::DoGrant(const SessionKey& key, Session& session, const Envelope& envelope) {
  const auto& grant = std::get<Grant>(envelope.message);
  const auto peer = peers_.find(session.peer);
  const Status connected = peer == peers_.end()
                               ? MakeStatus(StatusCode::kUnavailable, "the peer is gone")
                               : peer->second.writer->Connect();
  if (!connected.ok()) {
    // Nothing was read yet, so the session can go to another peer.
    core_.Send(session.peer, key, Fail{connected});
    return session.machine.OnMessage(Refuse{connected}, core_.Now());
  }
  const PeerWriter& writer = *peer->second.writer;
  std::vector<LinkGroups> link_groups = writer.link_groups();
  const Status fits = CheckGrant(grant, peer->second.shards, link_groups.size());
  if (!fits.ok()) return session.machine.Abort(fits, core_.Now());
  session.machine.SetLinks(std::move(link_groups), peer->second.state_blocks);
  session.machine.SetGroupTime(writer.prefers_bursts() ? writer.GroupTime() : Duration{});
  session.machine.OnMessage(envelope.message, core_.Now());
}

void KvSender::Impl::AnswerUnknown(const WorkerId& peer, const Envelope& envelope) {
  const SessionKey key(envelope.session, envelope.epoch);
  if (!std::holds_alternative<baton::Abort>(envelope.message)) ++counters_.rejected_messages;
  std::optional<ControlMessage> answer = AnswerWithoutSender(envelope.message);
  if (answer.has_value()) core_.Send(peer, key, *std::move(answer));
}

void KvSender::Impl::Act(const SessionKey& key) {
  while (Session* session = sessions_.Find(key)) {
    std::vector<SenderAction> actions = session->machine.TakeActions();
    if (actions.empty()) return;
    const SenderState state = session->machine.state();
    for (SenderAction& action : actions) {
      session = sessions_.Find(key);
      if (session == nullptr) return;
      Act(key, *session, action);
    }
    if (core_.options().on_state) core_.options().on_state(Name(state));
  }
}

void KvSender::Impl::Act(const SessionKey& key, Session& session, SenderAction& action) {
  PeerWriter* writer = Writer(session.peer);
  if (auto* send = std::get_if<SendControl>(&action)) {
    auto* const seal = std::get_if<baton::Seal>(&send->message);
    if (seal != nullptr) return SendSeal(key, session, std::move(*seal));
    core_.Send(session.peer, key, std::move(send->message));
  } else if (auto* post = std::get_if<PostBlocks>(&action)) {
    Post(key, session, *post);
  } else if (std::holds_alternative<StartWrites>(action)) {
    NoteStart(session);
    if (writer != nullptr) writer->Start(key);
  } else if (std::holds_alternative<StopWrites>(action)) {
    if (writer != nullptr) writer->Stop(key, *this);
  } else if (std::holds_alternative<FenceWrites>(action)) {
    ++counters_.by_peer[session.peer].fences;
    core_.Log(fmt::format("session {}.{}: fencing worker {}", key.first, key.second, session.peer));
    if (writer != nullptr) writer->Fence(key);
  } else if (std::holds_alternative<ReportGranted>(action)) {
    session.stats.wait = core_.Now() - session.offered;
    session.stats.cached_blocks = session.machine.grant().cached_blocks;
    listener_.OnGranted(key.first, key.second);
  } else if (auto* refused = std::get_if<ReportRefused>(&action)) {
    ++counters_.refused;
    listener_.OnRefused(key.first, key.second, refused->status);
  } else if (std::holds_alternative<ReportQuarantined>(action)) {
    core_.Log(
        fmt::format("session {}.{}: the reads for worker {} cannot be proven to have ended; {} "
                    "blocks stay in quarantine",
                    key.first,
                    key.second,
                    session.peer,
                    session.machine.source_blocks()));
  } else if (auto* end = std::get_if<ReportEnd>(&action)) {
    Finish(key, end->status);
  }
}

void KvSender::Impl::Post(const SessionKey& key, Session& session, const PostBlocks& post) {
  PeerWriter* writer = Writer(session.peer);
  const Grant& grant = session.machine.grant();
  if (writer == nullptr) {
    return session.machine.OnWriteLost(
        post.pieces, MakeStatus(StatusCode::kUnavailable, "the peer is gone"), core_.Now());
  }
  if (!post.held) NoteStart(session);
  std::vector<PeerWriter::Block> blocks;
  if (core_.options().layout.groups[post.cache_group].state) {
    for (const BlockPair& pair :
         PairsOfState(session.machine.state_blocks(), grant.blocks[post.cache_group])) {
      blocks.push_back({0, pair});
    }
  } else {
    blocks.resize(post.blocks.size());
    std::ranges::transform(post.blocks, blocks.begin(), [&](uint32_t index) {
      return PeerWriter::Block{index, session.machine.pair(index, post.cache_group)};
    });
  }
  writer->Enqueue(key,
                  {.window_key = grant.window_key,
                   .checksums = grant.checksums,
                   .cache_group = post.cache_group,
                   .first_group = post.first_group,
                   .end_group = post.end_group,
                   .held = post.held,
                   .urgent = post.urgent,
                   .bytes_per_second = grant.bytes_per_second},
                  blocks);
}

void KvSender::Impl::SendSeal(const SessionKey& key, const Session& session, baton::Seal seal) {
  PeerWriter* writer = Writer(session.peer);
  const uint64_t window_key = session.machine.grant().window_key;
  Envelope envelope{key.first, key.second, std::move(seal)};
  if (writer == nullptr || !writer->takes_notes() ||
      !writer->PostNote(window_key, EncodeEnvelope(envelope))) {
    core_.Send(session.peer, key, std::move(envelope.message));
  }
  if (writer != nullptr) writer->Release(window_key);
}

void KvSender::Impl::OnPosted(const SessionKey& key,
                              uint32_t link,
                              uint32_t first,
                              std::span<const uint64_t> checksums,
                              uint64_t bytes) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.OnPosted(link, first, checksums, bytes, core_.Now());
  Act(key);
}

void KvSender::Impl::OnWritten(const SessionKey& key, uint32_t pieces, uint64_t bytes) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  const Time now = core_.Now();
  counters_.bytes += bytes;
  if (const auto peer = peers_.find(session->peer); peer != peers_.end()) {
    peer->second.link.OnWritten(bytes, now);
  }
  session->machine.OnWritten(pieces, bytes, now);
  session->stats.stream = now - session->first_post;
  if (session->machine.outstanding() == 0) NoteIdle(*session);
  if (session->machine.lacks_only_seal()) {
    const PeerWriter* writer = Writer(session->peer);
    if (writer != nullptr && writer->polls_for_seal()) listener_.OnSealDue(core_.AwaitSeal(now));
  }
  Act(key);
}

void KvSender::Impl::OnWriteLost(const SessionKey& key, uint32_t pieces, const Status& reason) {
  Session* session = sessions_.Find(key);
  if (session == nullptr) return;
  session->machine.OnWriteLost(pieces, reason, core_.Now());
  Act(key);
}

void KvSender::Impl::Finish(const SessionKey& key, const Status& status) {
  auto node = sessions_.Extract(key);
  Session& session = node.mapped();
  NoteIdle(session);
  TransferStats stats = session.stats;
  stats.blocks = session.machine.posted_blocks();
  if (const PeerWriter* writer = Writer(session.peer)) {
    if (stats.blocks > 0) stats.transport = writer->transport_name();
  }
  stats.bytes = session.machine.bytes();
  stats.resent_blocks = session.machine.resent_blocks();
  counters_.by_peer[session.peer].resent_blocks += stats.resent_blocks;
  stats.total = core_.Now() - session.offered;
  if (session.busy > Duration{}) {
    stats.bytes_per_second = static_cast<double>(stats.bytes) / ToSeconds(session.busy);
  }
  if (status.ok()) {
    ++counters_.finished;
  } else if (IsCancelled(status)) {
    ++counters_.cancelled;
  } else {
    ++counters_.failed;
    core_.Log(fmt::format("session {}.{} to worker {} failed: {}",
                          key.first,
                          key.second,
                          session.peer,
                          Message(status)));
  }
  listener_.OnFinished(key.first, key.second, status, stats);
}

PeerWriter* KvSender::Impl::Writer(const WorkerId& peer) {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second.writer.get();
}

Time KvSender::Impl::Iteration(Time now) {
  bool more = false;
  // Callbacks inside these loops cannot change peers_: AddPeer and RemovePeer only post.
  for (auto& [id, peer] : peers_) more = peer.writer->Poll(now, *this) || more;
  for (auto& writer : departing_) more = writer->Poll(now, *this) || more;
  std::erase_if(departing_, [](const auto& writer) { return writer->idle(); });
  const bool tick = core_.Tick(now);
  if (tick) {
    for (const SessionKey& key : sessions_.Due(now)) {
      sessions_.Find(key)->machine.OnTime(now);
      Act(key);
    }
    GiveUpLate(now);
  }
  const bool idle = sessions_.empty() && departing_.empty();
  if (tick || idle) PublishStats();
  if (more || core_.expects_seal(now)) return now;
  Time wake = idle ? kNever : core_.next_tick();
  for (const auto& [id, peer] : peers_) wake = std::min(wake, peer.writer->wake_time());
  for (const auto& writer : departing_) wake = std::min(wake, writer->wake_time());
  return wake;
}

void KvSender::Impl::PublishStats() {
  KvTransferStats stats = counters_;
  stats.peers = static_cast<uint32_t>(peers_.size());
  for (const auto& [id, peer] : peers_) {
    stats.by_peer[id].writes += peer.writer->ops();
    stats.by_peer[id].bytes_per_second = peer.link.bytes_per_second(core_.Now());
  }
  for (const auto& [id, peer] : stats.by_peer) stats.ops += peer.writes;
  const Time now = core_.Now();
  for (const auto& [key, session] : sessions_) {
    const SenderState state = session.machine.state();
    PeerTransferStats& peer = stats.by_peer[session.peer];
    ++peer.open;
    peer.oldest = std::max(peer.oldest, now - session.offered);
    if (state == SenderState::kQuarantined) {
      ++stats.quarantined;
      stats.quarantined_blocks += session.machine.source_blocks();
      peer.quarantined_blocks += session.machine.source_blocks();
    } else if (state >= SenderState::kDraining) {
      ++stats.draining;
    } else if (state >= SenderState::kStreaming) {
      ++stats.streaming;
    } else {
      ++stats.offered;
    }
  }
  core_.Publish(std::move(stats));
}

}  // namespace baton
