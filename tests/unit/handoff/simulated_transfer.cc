#include "tests/unit/handoff/simulated_transfer.h"

#include <algorithm>
#include <string>

namespace baton {

void SimulatedTransfer::Offer(size_t sender, const OfferRequest& offer) {
  const SessionKey key(offer.session, offer.epoch);
  const auto [entry, is_new] = sessions_.try_emplace(key);
  if (!is_new) return events_.Violate("a session was offered twice");
  Session& session = entry->second;
  session.sender = sender;
  session.receiver = std::stoul(offer.peer.value());
  session.total_tokens = offer.total_tokens;
  events_.At(events_.Delay(), [this, key] { DeliverOffer(key); });
  events_.At(offer.timeout, [this, key] {
    const SenderState state = sessions_.at(key).sender_state;
    if (state == SenderState::kOffered || state == SenderState::kStreaming) {
      EndSender(key, Status(StatusCode::kDeadlineExceeded, "the time is over"), true);
    }
  });
}

void SimulatedTransfer::DeliverOffer(const SessionKey& key) {
  Session& session = sessions_.at(key);
  if (session.sender_state != SenderState::kOffered) return;
  if (events_.Chance(faults_.break_offer)) {
    return RefuseAtSender(key, Status(StatusCode::kUnavailable, "the stream broke"));
  }
  session.receiver_state = ReceiverState::kPending;
  listener_.OnOffer(session.receiver, key, session.total_tokens);
}

void SimulatedTransfer::RefuseAtSender(const SessionKey& key, const Status& status) {
  Session& session = sessions_.at(key);
  if (session.sender_state != SenderState::kOffered) return;
  session.sender_state = SenderState::kRefused;
  listener_.OnRefused(session.sender, key, status);
}

void SimulatedTransfer::BlocksReady(const SessionKey& key, uint32_t first_index, size_t count) {
  Session& session = sessions_.at(key);
  if (session.sealed) events_.Violate("blocks after SEAL");
  for (uint32_t i = 0; i < count; ++i) session.ready.insert(first_index + i);
}

void SimulatedTransfer::Seal(const SessionKey& key, const std::vector<SampledToken>& first_tokens) {
  Session& session = sessions_.at(key);
  if (session.ready.size() != PromptBlocks(session.total_tokens, 16)) {
    events_.Violate("SEAL before all blocks are ready");
  }
  session.sealed = true;
  session.first_tokens = first_tokens;
  CommitWhenComplete(key);
}

void SimulatedTransfer::AbortSender(const SessionKey& key, const Status& reason) {
  EndSender(key, reason, true);
}

// A session that no peer knows ends alone.
void SimulatedTransfer::EndSender(const SessionKey& key, const Status& status, bool tell_peer) {
  Session& session = sessions_.at(key);
  if (session.sender_state >= SenderState::kDraining) return;
  session.sender_state = SenderState::kDraining;
  events_.At(events_.Delay(), [this, key, status] {
    Session& drained = sessions_.at(key);
    if (drained.sender_state == SenderState::kFinished) return;
    drained.sender_state = SenderState::kFinished;
    listener_.OnFinished(drained.sender, key, status);
  });
  if (tell_peer) events_.At(events_.Delay(), [this, key, status] { DeliverFail(key, status); });
}

void SimulatedTransfer::DeliverFail(const SessionKey& key, const Status& status) {
  Session& session = sessions_.at(key);
  if (session.receiver_state == ReceiverState::kPending) {
    session.receiver_state = ReceiverState::kOver;
    session.withdrawn = status;
    listener_.OnWithdrawn(session.receiver, key, status);
  } else if (session.receiver_state == ReceiverState::kGranted) {
    CloseWindow(key, status);
  }
}

void SimulatedTransfer::Grant(const SessionKey& key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return events_.Violate("a grant without an offer");
  Session& session = found->second;
  if (session.receiver_state == ReceiverState::kPending) {
    session.receiver_state = ReceiverState::kGranted;
    events_.At(events_.Delay(), [this, key] { DeliverGrant(key); });
  } else if (!session.withdrawn.ok()) {
    listener_.OnReleased(session.receiver, key, session.withdrawn);
  } else {
    events_.Violate("a grant of a session that was answered before");
  }
}

void SimulatedTransfer::DeliverGrant(const SessionKey& key) {
  Session& session = sessions_.at(key);
  if (session.sender_state == SenderState::kOffered) {
    session.sender_state = SenderState::kStreaming;
    listener_.OnGranted(session.sender, key);
    CommitWhenComplete(key);
  } else {
    CloseWindow(key, Status(StatusCode::kCancelled, "the sender does not wait for this grant"));
  }
}

void SimulatedTransfer::Refuse(const SessionKey& key, const Status& reason) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return events_.Violate("a refusal without an offer");
  Session& session = found->second;
  if (session.receiver_state != ReceiverState::kPending) return;
  session.receiver_state = ReceiverState::kOver;
  events_.At(events_.Delay(), [this, key, reason] { RefuseAtSender(key, reason); });
}

void SimulatedTransfer::AbortReceiver(const SessionKey& key, const Status& reason) {
  if (sessions_.at(key).receiver_state != ReceiverState::kGranted) return;
  CloseWindow(key, reason);
  events_.At(events_.Delay(), [this, key, reason] { EndSender(key, reason, false); });
}

void SimulatedTransfer::CloseWindow(const SessionKey& key, const Status& status) {
  Session& session = sessions_.at(key);
  if (session.receiver_state != ReceiverState::kGranted) return;
  session.receiver_state = ReceiverState::kClosing;
  const Duration delay = events_.Chance(faults_.slow_close)
                             ? std::chrono::milliseconds(events_.Below(500))
                             : events_.Delay();
  events_.At(delay, [this, key, status] {
    Session& closed = sessions_.at(key);
    if (closed.receiver_state != ReceiverState::kClosing) return;  // the process has ended
    closed.receiver_state = ReceiverState::kOver;
    listener_.OnReleased(closed.receiver, key, status);
  });
}

void SimulatedTransfer::CommitWhenComplete(const SessionKey& key) {
  const Session& session = sessions_.at(key);
  if (session.sender_state != SenderState::kStreaming || !session.sealed) return;
  events_.At(events_.Delay(), [this, key] { Commit(key); });
}

void SimulatedTransfer::Commit(const SessionKey& key) {
  Session& session = sessions_.at(key);
  if (session.sender_state != SenderState::kStreaming) return;
  if (session.receiver_state != ReceiverState::kGranted) return;
  const Status failed(StatusCode::kUnavailable, "a write was lost");
  if (events_.Chance(faults_.fail)) return EndSender(key, failed, true);
  session.receiver_state = ReceiverState::kOver;
  committed_.insert(key);
  listener_.OnCommitted(session.receiver, key, session.first_tokens);
  if (events_.Chance(faults_.lose_ack)) return EndSender(key, failed, false);
  events_.At(events_.Delay(), [this, key] {
    Session& acknowledged = sessions_.at(key);
    if (acknowledged.sender_state != SenderState::kStreaming) return;
    acknowledged.sender_state = SenderState::kFinished;
    listener_.OnFinished(acknowledged.sender, key, OkStatus());
  });
}

void SimulatedTransfer::LosePeer(const SessionKey& key) {
  const Status lost(StatusCode::kUnavailable, "the stream broke");
  events_.At(events_.Delay(), [this, key, lost] {
    const Session& session = sessions_.at(key);
    if (session.sender_state == SenderState::kOffered) return RefuseAtSender(key, lost);
    if (session.sender_state == SenderState::kStreaming) return EndSender(key, lost, false);
    // A refusal may be repeated.
    if (session.sender_state == SenderState::kRefused) {
      listener_.OnRefused(session.sender, key, lost);
    }
  });
  events_.At(events_.Delay(), [this, key, lost] { DeliverFail(key, lost); });
}

void SimulatedTransfer::BreakStreams(size_t worker) {
  for (const auto& [key, session] : sessions_) {
    if (session.sender == worker || session.receiver == worker) LosePeer(key);
  }
}

void SimulatedTransfer::Crash(size_t worker) {
  for (auto& [key, session] : sessions_) {
    if (session.sender == worker) session.sender_state = SenderState::kFinished;
    if (session.receiver == worker) session.receiver_state = ReceiverState::kOver;
  }
  BreakStreams(worker);
}

bool SimulatedTransfer::MayRead(size_t sender, RequestId request) const {
  return std::ranges::any_of(sessions_, [&](const auto& entry) {
    const auto& [key, session] = entry;
    return session.sender == sender && RequestOf(key) == request &&
           session.sender_state != SenderState::kFinished;
  });
}

bool SimulatedTransfer::MayWrite(size_t receiver, RequestId request, Epoch epoch) const {
  return std::ranges::any_of(sessions_, [&](const auto& entry) {
    const auto& [key, session] = entry;
    const bool open = session.receiver_state == ReceiverState::kGranted ||
                      session.receiver_state == ReceiverState::kClosing;
    return session.receiver == receiver && RequestOf(key) == request && key.second == epoch && open;
  });
}

bool SimulatedTransfer::IsCommitted(RequestId request, Epoch epoch) const {
  return std::ranges::any_of(committed_, [&](const SessionKey& key) {
    return RequestOf(key) == request && key.second == epoch;
  });
}

void SimulatedTransfer::CheckEnded() const {
  for (const auto& [key, session] : sessions_) {
    if (session.sender_state != SenderState::kFinished) {
      events_.Violate(fmt::format("session {} never ended at its sender", key.first));
    }
    if (session.receiver_state != ReceiverState::kAbsent &&
        session.receiver_state != ReceiverState::kOver) {
      events_.Violate(fmt::format("session {} never ended at its receiver", key.first));
    }
  }
}

}  // namespace baton
