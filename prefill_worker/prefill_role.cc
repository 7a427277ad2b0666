#include "prefill_worker/prefill_role.h"

#include <algorithm>

#include "common/log/log.h"

namespace baton {
namespace {

// The engine refuses requests with more samples.
constexpr int32_t kMaxSamples = 1024;

const Logger kLog("prefill");

}  // namespace

StatusOr<std::unique_ptr<PrefillRole>> PrefillRole::Create(Worker& worker,
                                                           KvTransferOptions transfer,
                                                           const PrefillOptions& options) {
  std::unique_ptr<PrefillRole> role(new PrefillRole(worker, options));
  transfer.log = [](std::string_view line) { kLog.Warning("{}", line); };
  BATON_ASSIGN_OR_RETURN(role->sender_, KvSender::Create(std::move(transfer), *role));
  role->peers_ =
      std::make_unique<DecodePeers>(*role->sender_,
                                    worker.loop(),
                                    worker.clock(),
                                    options.limits,
                                    [raw = role.get()](const WorkerId& peer, const Status& status) {
                                      raw->OnPeerSettled(peer, status);
                                    });
  return role;
}

PrefillRole::PrefillRole(Worker& worker, const PrefillOptions& options)
    : worker_(worker), options_(options) {}

void PrefillRole::Stop() {
  peers_->Stop();
  sender_.reset();
}

Status PrefillRole::OnDispatch(RouterKey router, DispatchCommand dispatch) {
  Request& request = dispatch.request;
  const Key key{request.id, request.epoch};
  const SessionKey session{dispatch.session, request.epoch};
  if (handoffs_.contains(key) || sessions_.contains(session)) return AlreadyKnown(key, session);
  auto handoff = std::make_unique<Handoff>();
  handoff->router = router;
  handoff->session = session;
  handoff->peer = dispatch.peer;
  handoff->total_tokens = static_cast<uint32_t>(request.tokens.size());
  handoff->deadline = std::min(request.deadline, worker_.clock().Now() + options_.handoff_limit);
  handoff->first_sample = request.first_sample;
  handoff->first_tokens.resize(static_cast<size_t>(std::clamp(request.samples, 0, kMaxSamples)));
  Handoff& entry = *handoff;
  handoffs_.try_emplace(key, std::move(handoff));
  sessions_[session] = key;
  worker_.engine().Submit(std::move(request));
  if (peers_->Connect(entry.peer)) Offer(entry);
  return OkStatus();
}

void PrefillRole::Offer(Handoff& handoff) {
  handoff.phase = Phase::kOffered;
  handoff.in_sender = true;
  OfferRequest offer;
  offer.session = handoff.session.first;
  offer.epoch = handoff.session.second;
  offer.peer = handoff.peer.id;
  offer.total_tokens = handoff.total_tokens;
  offer.timeout =
      std::max<Duration>(std::chrono::milliseconds(1), handoff.deadline - worker_.clock().Now());
  sender_->Offer(std::move(offer));
  const auto& [session, epoch] = handoff.session;
  if (!handoff.blocks.empty()) sender_->ChunkReady(session, epoch, 0, handoff.blocks);
  if (handoff.sealed) sender_->Seal(session, epoch, EncodeFirstTokens(handoff.first_tokens));
}

void PrefillRole::OnPeerSettled(const WorkerId& peer, const Status& status) {
  std::vector<Key> waiting;
  for (const auto& [key, handoff] : handoffs_) {
    if (handoff->phase == Phase::kConnecting && handoff->peer.id == peer) {
      waiting.push_back(key);
    }
  }
  std::ranges::sort(waiting);  // offer the requests of a router in their order
  for (const Key& key : waiting) {
    Handoff& handoff = *handoffs_.at(key);
    if (status.ok()) {
      Offer(handoff);
    } else {
      Refused(key, handoff, status);
    }
  }
}

// A hand-off that is not in the sender now receives these blocks by OnKvChunk.
void PrefillRole::OnKvLayers(const KvChunk& chunk, int32_t layers) {
  const auto found = handoffs_.find({chunk.id, chunk.epoch});
  if (found == handoffs_.end()) return;
  Handoff& handoff = *found->second;
  handoff.leased = true;
  if (!handoff.in_sender || handoff.phase == Phase::kEnding) return;
  const auto& [session, epoch] = handoff.session;
  sender_->LayersReady(
      session, epoch, static_cast<uint32_t>(chunk.first_index), chunk.blocks, layers);
}

void PrefillRole::OnKvChunk(const KvChunk& chunk) {
  const auto found = handoffs_.find({chunk.id, chunk.epoch});
  if (found == handoffs_.end()) return;
  Handoff& handoff = *found->second;
  handoff.leased = true;
  handoff.last_chunk = worker_.clock().Now();
  const size_t end = static_cast<size_t>(chunk.first_index) + chunk.blocks.size();
  if (handoff.blocks.size() < end) handoff.blocks.resize(end);
  std::copy(chunk.blocks.begin(), chunk.blocks.end(), handoff.blocks.begin() + chunk.first_index);
  if (handoff.in_sender && handoff.phase != Phase::kEnding) {
    const auto& [session, epoch] = handoff.session;
    sender_->ChunkReady(session, epoch, static_cast<uint32_t>(chunk.first_index), chunk.blocks);
  }
}

void PrefillRole::OnToken(const TokenOutput& token) {
  const auto found = handoffs_.find({token.id, token.epoch});
  if (found == handoffs_.end()) return;
  Handoff& handoff = *found->second;
  const size_t sample = static_cast<size_t>(token.sample - handoff.first_sample);
  if (sample >= handoff.first_tokens.size()) return;
  handoff.first_tokens[sample] = token.token;
  if (token.finish == FinishReason::kHandedOff) handoff.continues = true;
}

bool PrefillRole::OnEnded(RequestId id, Epoch epoch, const Status& status) {
  const Key key{id, epoch};
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end()) return true;
  Handoff& handoff = *found->second;
  handoff.computed = true;
  worker_.loop().BusyPollFor(Duration{});
  if (!status.ok()) {
    GiveUp(handoff, status);
  } else if (!handoff.continues) {
    // The first token ended every sample: there is nothing to hand over.
    worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kNotNeeded, OkStatus()));
    GiveUp(handoff, Status(StatusCode::kCancelled, "the request ended with its first token"));
  } else if (handoff.phase != Phase::kOver && handoff.phase != Phase::kEnding) {
    handoff.sealed = true;
    if (handoff.in_sender) {
      sender_->Seal(
          handoff.session.first, handoff.session.second, EncodeFirstTokens(handoff.first_tokens));
    }
  }
  EraseIfOver(key);
  return true;
}

void PrefillRole::OnRefused(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, session, epoch, status] {
    const auto known = sessions_.find({session, epoch});
    if (known == sessions_.end()) return;
    const Key key = known->second;
    Handoff& handoff = *handoffs_.at(key);
    if (handoff.session == known->first && handoff.phase == Phase::kOffered) {
      Refused(key, handoff, status);
    }
  });
}

void PrefillRole::Refused(const Key& key, Handoff& handoff, const Status& status) {
  handoff.phase = Phase::kParked;
  handoff.parked = worker_.clock().Now();
  kLog.Info(
      "request {}: decode worker {} refused: {}", key.first, handoff.peer.id, Message(status));
  worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kRefused, status));
}

void PrefillRole::OnRedirect(RouterKey router, const RedirectCommand& redirect) {
  const Key key{redirect.id, redirect.epoch};
  const SessionKey session{redirect.session, redirect.decode_epoch};
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end() || found->second->phase != Phase::kParked) {
    const Status gone(StatusCode::kNotFound,
                      "redirect: no refused hand-off of this request waits for a redirect");
    return worker_.ReportFailure(router, redirect.id, redirect.epoch, gone);
  }
  if (sessions_.contains(session)) {
    return worker_.ReportFailure(router, redirect.id, redirect.epoch, AlreadyKnown(key, session));
  }
  Handoff& handoff = *found->second;
  if (handoff.in_sender) {
    handoff.in_sender = false;
    ++handoff.lingering;
    sender_->Abort(handoff.session.first,
                   handoff.session.second,
                   Status(StatusCode::kCancelled, "the KV is sent to another decode worker"));
  } else {
    sessions_.erase(handoff.session);
  }
  handoff.session = session;
  handoff.peer = redirect.peer;
  handoff.phase = Phase::kConnecting;
  sessions_[session] = key;
  if (peers_->Connect(handoff.peer)) Offer(handoff);
}

void PrefillRole::OnFinished(SessionId session,
                             Epoch epoch,
                             const Status& status,
                             const TransferStats& stats) {
  worker_.loop().PostInternal(
      [this, session, epoch, status, stats] { Finished(session, epoch, status, stats); });
}

void PrefillRole::Finished(SessionId session,
                           Epoch epoch,
                           const Status& status,
                           const TransferStats& stats) {
  const auto known = sessions_.find({session, epoch});
  if (known == sessions_.end()) return;
  const Key key = known->second;
  sessions_.erase(known);
  Handoff& handoff = *handoffs_.at(key);
  if (handoff.session != SessionKey(session, epoch)) {
    --handoff.lingering;
    return EraseIfOver(key);
  }
  const bool expected = handoff.phase == Phase::kEnding;
  handoff.in_sender = false;
  handoff.phase = Phase::kOver;
  if (status.ok()) {
    PeerTraffic& traffic = traffic_[handoff.peer.id];
    if (!stats.transport.empty() && traffic.transport != stats.transport) {
      kLog.Info("KV is sent to decode worker {} over {}", handoff.peer.id, stats.transport);
      traffic.transport = stats.transport;
    }
    traffic.bytes += stats.bytes;
    ++traffic.transfers;
    traffic.bytes_per_second = stats.bytes_per_second;
    HandoffReport report = ReportOf(key, HandoffReport::Outcome::kCommitted, status);
    report.bytes = stats.bytes;
    report.transfer = worker_.clock().Now() - handoff.last_chunk;
    report.bytes_per_second = stats.bytes_per_second;
    report.transport = stats.transport;
    report.reused_blocks = static_cast<int32_t>(stats.cached_blocks);
    worker_.Report(handoff.router, report);
  } else if (!expected) {
    worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kFailed, status));
    if (!handoff.computed) worker_.Drop(key.first, key.second);
  }
  EraseIfOver(key);
}

void PrefillRole::GiveUp(Handoff& handoff, const Status& reason) {
  if (handoff.phase == Phase::kEnding || handoff.phase == Phase::kOver) return;
  if (handoff.in_sender) {
    handoff.phase = Phase::kEnding;
    sender_->Abort(handoff.session.first, handoff.session.second, reason);
  } else {
    handoff.phase = Phase::kOver;
    sessions_.erase(handoff.session);
  }
}

void PrefillRole::OnCancel(RouterKey router, RequestId id, Epoch epoch) {
  const Key key{id, epoch};
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end() || found->second->router != router) return;
  GiveUp(*found->second, Status(StatusCode::kCancelled, "the request was cancelled"));
  EraseIfOver(key);
}

void PrefillRole::OnRouterLost(RouterKey router) {
  std::vector<Key> lost;
  for (const auto& [key, handoff] : handoffs_) {
    if (handoff->router == router) lost.push_back(key);
  }
  for (const Key& key : lost) OnCancel(router, key.first, key.second);
}

void PrefillRole::OnTick(Time now) {
  peers_->OnTick(now);
  std::vector<Key> late;
  for (const auto& [key, handoff] : handoffs_) {
    const bool waits = handoff->phase == Phase::kParked || handoff->phase == Phase::kConnecting;
    const bool unanswered =
        handoff->phase == Phase::kParked && now - handoff->parked > options_.redirect_wait;
    if (unanswered || (waits && now > handoff->deadline)) late.push_back(key);
  }
  for (const Key& key : late) {
    Handoff& handoff = *handoffs_.at(key);
    const Status why(StatusCode::kDeadlineExceeded, "no decode worker accepted the KV in time");
    worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kFailed, why));
    if (!handoff.computed) worker_.Drop(key.first, key.second);
    GiveUp(handoff, why);
    EraseIfOver(key);
  }
}

void PrefillRole::EraseIfOver(const Key& key) {
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end()) return;
  const Handoff& handoff = *found->second;
  if (!handoff.computed || handoff.phase != Phase::kOver || handoff.lingering > 0) return;
  if (handoff.leased) worker_.engine().ReleaseKv(key.first, key.second);
  handoffs_.erase(found);
}

}  // namespace baton
