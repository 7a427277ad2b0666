#include "kvtransfer/session/receiver_session.h"

#include <algorithm>
#include <utility>

namespace baton {

std::string_view Name(ReceiverState state) {
  switch (state) {
    case ReceiverState::kPending:
      return "pending";
    case ReceiverState::kReceiving:
      return "receiving";
    case ReceiverState::kClosing:
      return "closing";
    case ReceiverState::kDraining:
      return "draining";
    case ReceiverState::kQuarantined:
      return "quarantined";
    case ReceiverState::kCommitted:
      return "committed";
    case ReceiverState::kReleased:
      return "released";
    case ReceiverState::kRefused:
      return "refused";
    case ReceiverState::kWithdrawn:
      return "withdrawn";
  }
  return "unknown";
}

std::optional<ControlMessage> AnswerWithoutReceiver(const ControlMessage& message) {
  if (!std::holds_alternative<Seal>(message) && !std::holds_alternative<Renew>(message)) {
    return std::nullopt;
  }
  return Abort{MakeStatus(StatusCode::kNotFound, "the receiver has no such session")};
}

ReceiverSession::ReceiverSession(Offer offer, OwedBlocks owed, const SessionTimes& times, Time now)
    : offer_(offer),
      owed_(std::move(owed)),
      times_(times),
      deadline_(now + offer_.timeout),
      last_heard_(now) {
  actions_.emplace_back(ReportOffer{offer_});
  Send(Renew{});
}

Status ReceiverSession::Grant(Reservation reservation, Time now) {
  if (state_ != ReceiverState::kPending) {
    return MakeStatus(StatusCode::kFailedPrecondition, "the offer is {}", Name(state_));
  }
  BATON_RETURN_IF_ERROR(CheckOwed(reservation.grant, owed_, reservation.state_blocks));
  if (reservation.links.size() != reservation.grant.links) {
    return InvalidArgument("GRANT expects {} links; there are {} from this peer",
                           reservation.grant.links,
                           reservation.links.size());
  }
  reservation_ = std::move(reservation);
  state_ = ReceiverState::kReceiving;
  std::vector<LinkGroups> links;
  for (const Reservation::Link& link : reservation_.links) links.push_back(link.groups);
  index_ = PieceIndex(owed_, reservation_.grant.cached_blocks, links);
  pieces_.assign(index_.total(), Piece{});
  for (uint32_t link = 0; link < index_.links(); ++link) {
    expected_bytes_ += reservation_.links[link].block_bytes * index_.blocks(link);
  }
  actions_.emplace_back(OpenWindows{});
  Send(reservation_.grant);
  // The engine may have needed a long time to find blocks: the sender's lease starts anew here.
  last_heard_ = now;
  return OkStatus();
}

void ReceiverSession::Refuse(Status reason, Time now) {
  if (state_ != ReceiverState::kPending) return Abort(std::move(reason), now);
  state_ = ReceiverState::kRefused;
  outcome_ = reason;
  Send(baton::Refuse{reason});
  actions_.emplace_back(ReportRefused{std::move(reason)});
}

void ReceiverSession::Abort(Status reason, Time now) {
  if (state_ == ReceiverState::kPending) return Refuse(std::move(reason), now);
  if (state_ == ReceiverState::kReceiving || state_ == ReceiverState::kClosing) {
    Drain(std::move(reason), true, now);
  }
}

void ReceiverSession::OnMessage(const ControlMessage& message, Time now) {
  last_heard_ = now;
  if (const auto* fail = std::get_if<Fail>(&message)) {
    if (state_ == ReceiverState::kPending) {
      state_ = ReceiverState::kWithdrawn;
      outcome_ = fail->status;
      actions_.emplace_back(ReportWithdrawn{outcome_});
    } else if (state_ == ReceiverState::kReceiving || state_ == ReceiverState::kClosing) {
      Drain(fail->status, false, now);
    }
  } else if (ended() || state_ == ReceiverState::kDraining ||
             state_ == ReceiverState::kQuarantined) {
    if (!std::holds_alternative<DrainAck>(message)) Answer();
  } else if (std::holds_alternative<Offer>(message)) {
    OnOfferAgain();
  } else if (const auto* renew = std::get_if<Renew>(&message)) {
    OnRenew(*renew);
  } else if (const auto* seal = std::get_if<Seal>(&message)) {
    OnSeal(*seal, now);
  }
}

void ReceiverSession::OnOfferAgain() {
  if (state_ == ReceiverState::kPending) return Send(Renew{});
  Send(reservation_.grant);
}

void ReceiverSession::OnRenew(const Renew& renew) {
  if (state_ == ReceiverState::kReceiving && !renew.granted) return Send(reservation_.grant);
  SendProgress();
}

void ReceiverSession::SendProgress() {
  // The RESEND may have been lost. Its attempt number makes a repetition harmless.
  if (state_ == ReceiverState::kReceiving && resends_ > 0) Send(Resend{resends_, wanted_again_});
  Send(Renew{state_ != ReceiverState::kPending, arrived_});
}

void ReceiverSession::Answer() {
  switch (state_) {
    case ReceiverState::kCommitted:
      return Send(Ack{expected_bytes_});
    case ReceiverState::kRefused:
      return Send(baton::Refuse{outcome_});
    default:
      return Send(baton::Abort{outcome_});
  }
}

void ReceiverSession::OnSeal(const Seal& seal, Time now) {
  if (state_ == ReceiverState::kPending) {
    return Refuse(MakeStatus(StatusCode::kFailedPrecondition, "SEAL came before the grant"), now);
  }
  const baton::Grant& grant = reservation_.grant;
  const size_t checksums = grant.checksums ? pieces_.size() : 0;
  if (seal.blocks != granted_blocks() || seal.checksums.size() != checksums) {
    return Abort(InvalidArgument("SEAL states {} blocks and {} checksums; the grant has {} and {}",
                                 seal.blocks,
                                 seal.checksums.size(),
                                 granted_blocks(),
                                 checksums),
                 now);
  }
  if (seal.bytes != expected_bytes_) {
    return Abort(
        InvalidArgument("SEAL states {} bytes; the grant has {}", seal.bytes, expected_bytes_),
        now);
  }
  if (!sealed_) {
    sealed_ = true;
    seal_ = seal;
    return CloseWhenComplete(now);
  }
  // A repeated SEAL shows that the sender waits. The first one is answered by its outcome alone,
  // because a RENEW would only wake the sender's thread.
  if (state_ == ReceiverState::kReceiving) SendProgress();
}

void ReceiverSession::OnArrival(const PieceArrival& arrival, Time now) {
  if (state_ != ReceiverState::kReceiving && state_ != ReceiverState::kClosing) return;
  last_heard_ = now;
  const baton::Grant& grant = reservation_.grant;
  const uint32_t blocks = arrival.link < index_.links() ? index_.blocks(arrival.link) : 0;
  const size_t checksums = grant.checksums ? arrival.count : 0;
  if (arrival.link >= index_.links() || arrival.first > blocks ||
      arrival.count > blocks - arrival.first || arrival.checksums.size() != checksums ||
      arrival.bytes != arrival.count * reservation_.links[arrival.link].block_bytes) {
    return Abort(InvalidArgument("a write of {} bytes as blocks {}+{} of {} on link {} of {}, with "
                                 "{} checksums, is not what was granted",
                                 arrival.bytes,
                                 arrival.first,
                                 arrival.count,
                                 blocks,
                                 arrival.link,
                                 grant.links,
                                 arrival.checksums.size()),
                 now);
  }
  for (uint32_t i = 0; i < arrival.count; ++i) {
    Piece& piece = pieces_[index_.at(arrival.link, arrival.first + i)];
    if (!piece.arrived) ++arrived_;
    piece.arrived = true;
    if (grant.checksums) piece.checksum = arrival.checksums[i];
  }
  CloseWhenComplete(now);
}

std::vector<uint32_t> ReceiverSession::DamagedBlocks() const {
  std::vector<uint32_t> damaged;
  if (!reservation_.grant.checksums) return damaged;
  for (uint32_t link = 0; link < index_.links(); ++link) {
    for (uint32_t i = 0; i < index_.blocks(link); ++i) {
      const size_t piece = index_.at(link, i);
      if (pieces_[piece].checksum == seal_.checksums[piece]) continue;
      damaged.push_back(index_.first_block(link) + i);
    }
  }
  std::sort(damaged.begin(), damaged.end());
  damaged.erase(std::unique(damaged.begin(), damaged.end()), damaged.end());
  return damaged;
}

void ReceiverSession::CloseWhenComplete(Time now) {
  if (state_ != ReceiverState::kReceiving || !sealed_ || arrived_ != pieces_.size()) return;
  std::vector<uint32_t> damaged = DamagedBlocks();
  if (damaged.empty()) {
    state_ = ReceiverState::kClosing;
    drain_until_ = now + times_.drain;
    actions_.emplace_back(CloseWindows{});
    return;
  }
  damaged_ += static_cast<uint32_t>(damaged.size());
  if (resends_ > 0) {
    return Abort(MakeStatus(StatusCode::kDataLoss,
                            "{} of {} blocks arrived damaged twice, the first is block {}",
                            damaged.size(),
                            owed_.count - reservation_.grant.cached_blocks,
                            damaged.front()),
                 now);
  }
  ++resends_;
  for (const uint32_t block : damaged) {
    for (uint32_t link = 0; link < index_.links(); ++link) {
      if (block < index_.first_block(link)) continue;
      pieces_[index_.at(link, block - index_.first_block(link))].arrived = false;
      --arrived_;
    }
  }
  wanted_again_ = std::move(damaged);
  Send(Resend{resends_, wanted_again_});
}

void ReceiverSession::OnWindowsClosed(const Status& status, Time now) {
  if (!status.ok()) {
    if (state_ == ReceiverState::kClosing) Drain(status, true, now);
    if (state_ == ReceiverState::kDraining) {
      state_ = ReceiverState::kQuarantined;
      actions_.emplace_back(ReportQuarantined{});
    }
    return;
  }
  if (state_ == ReceiverState::kClosing) {
    // A write may have landed between the check and the close.
    if (DamagedBlocks().empty()) return Commit();
    outcome_ = MakeStatus(StatusCode::kDataLoss, "a late write changed verified blocks");
    Send(baton::Abort{outcome_});
  } else if (state_ != ReceiverState::kDraining && state_ != ReceiverState::kQuarantined) {
    return;
  }
  state_ = ReceiverState::kReleased;
  actions_.emplace_back(ReportReleased{outcome_});
}

void ReceiverSession::Commit() {
  state_ = ReceiverState::kCommitted;
  actions_.emplace_back(ReportCommitted{std::move(seal_.payload)});
  Send(Ack{expected_bytes_});
}

void ReceiverSession::OnPeerLost(Status reason, Time now) {
  if (state_ == ReceiverState::kPending) {
    state_ = ReceiverState::kWithdrawn;
    outcome_ = std::move(reason);
    actions_.emplace_back(ReportWithdrawn{outcome_});
  } else if (state_ == ReceiverState::kReceiving) {
    Drain(std::move(reason), false, now);
  }
}

void ReceiverSession::Drain(Status outcome, bool tell_peer, Time now) {
  // A close that is already under way also serves the drain.
  const bool closing = state_ == ReceiverState::kClosing;
  state_ = ReceiverState::kDraining;
  outcome_ = std::move(outcome);
  drain_until_ = now + times_.drain + times_.fence;
  if (tell_peer) Send(baton::Abort{outcome_});
  if (!closing) actions_.emplace_back(CloseWindows{});
}

void ReceiverSession::OnTime(Time now) {
  if (ended() || state_ == ReceiverState::kQuarantined) return;
  if (state_ == ReceiverState::kDraining || state_ == ReceiverState::kClosing) {
    if (now < drain_until_) return;
    if (state_ == ReceiverState::kClosing) {
      return Drain(
          MakeStatus(StatusCode::kUnavailable, "late writes could not be stopped"), true, now);
    }
    state_ = ReceiverState::kQuarantined;
    actions_.emplace_back(ReportQuarantined{});
    return;
  }
  Status reason;
  if (now >= deadline_) {
    reason = MakeStatus(StatusCode::kDeadlineExceeded,
                        "KV hand-off not finished after {:.3f} s, {} with {} of {} pieces",
                        ToSeconds(offer_.timeout),
                        Name(state_),
                        arrived_,
                        pieces_.size());
  } else if (now >= last_heard_ + times_.lease) {
    reason = MakeStatus(
        StatusCode::kUnavailable, "peer silent for {:.3f} s", ToSeconds(now - last_heard_));
  } else {
    return;
  }
  if (state_ != ReceiverState::kPending) return Abort(std::move(reason), now);
  Send(baton::Refuse{reason});
  OnPeerLost(std::move(reason), now);
}

Time ReceiverSession::wake_time() const {
  if (ended() || state_ == ReceiverState::kQuarantined) return kNever;
  if (state_ == ReceiverState::kDraining || state_ == ReceiverState::kClosing) return drain_until_;
  return std::min(deadline_, last_heard_ + times_.lease);
}

}  // namespace baton
