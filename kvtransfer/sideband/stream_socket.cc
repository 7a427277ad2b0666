#include "kvtransfer/sideband/stream_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kvtransfer/wire/frame.h"

namespace baton {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

}  // namespace

StreamSocket::StreamSocket(UniqueFd socket,
                           std::unique_ptr<PeerProof> proof,
                           PeerSide side,
                           OnRefused on_refused)
    : socket_(std::move(socket)),
      proof_(std::move(proof)),
      on_refused_(std::move(on_refused)),
      received_(kReadBytes) {
  if (proof_ != nullptr && side == PeerSide::kDialler) proof_out_ = proof_->Begin();
}

void StreamSocket::Queue(const SidebandFrame& frame) {
  out_.push_back(EncodeStreamFrame(frame));
}

Status StreamSocket::Flush() {
  if (!proof_out_.empty()) {
    BATON_ASSIGN_OR_RETURN(const bool all, SendPart(proof_out_));
    if (!all) return OkStatus();
    proof_out_.clear();
  }
  while (is_proven() && !out_.empty()) {
    BATON_ASSIGN_OR_RETURN(const bool all, SendPart(out_.front()));
    if (!all) return OkStatus();
    out_.pop_front();
  }
  return OkStatus();
}

StatusOr<bool> StreamSocket::SendPart(const std::string& message) {
  while (sent_ < message.size()) {
    const ssize_t sent = ::send(
        socket_.get(), message.data() + sent_, message.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    // ENOTCONN: a connection that is still being made on some kernels.
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN) return false;
    return MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno));
  }
  sent_ = 0;
  return true;
}

Status StreamSocket::TakeProof() {
  while (!is_proven()) {
    const std::string_view left = std::string_view(in_).substr(taken_);
    const std::string_view message = left.substr(0, kPeerProofBytes);
    // Other protocols send less than a message, or wait for an answer, so the first bytes decide.
    const size_t known = std::min(message.size(), kPeerProofMagic.size());
    const bool garbage = message.substr(0, known) != kPeerProofMagic.substr(0, known);
    if (message.size() < kPeerProofBytes && !garbage) return OkStatus();
    StatusOr<std::string> answer = proof_->OnMessage(message);
    if (!answer.ok()) {
      if (on_refused_) on_refused_(answer.status());
      return answer.status();
    }
    taken_ += message.size();
    proof_out_ += *answer;
  }
  return Flush();
}

StatusOr<std::optional<SidebandFrame>> StreamSocket::Receive() {
  while (true) {
    std::optional<SidebandFrame> frame;
    if (!is_proven()) BATON_RETURN_IF_ERROR(TakeProof());
    if (is_proven()) {
      BATON_ASSIGN_OR_RETURN(frame, TakeStreamFrame(in_, taken_));
    } else {
      BATON_RETURN_IF_ERROR(Flush());
    }
    if (frame) return frame;
    in_.erase(0, taken_);
    taken_ = 0;
    const ssize_t got = ::recv(socket_.get(), received_.data(), received_.size(), MSG_DONTWAIT);
    if (got > 0) {
      in_.append(received_.data(), static_cast<size_t>(got));
      continue;
    }
    if (got == 0 && in_.empty()) return MakeStatus(StatusCode::kOutOfRange, "closed by the peer");
    if (got == 0) {
      return MakeStatus(StatusCode::kUnavailable, "closed by the peer in the middle of a frame");
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return frame;
    return MakeStatus(StatusCode::kUnavailable, "receive: {}", std::strerror(errno));
  }
}

std::unique_ptr<FrameSocket> AcceptDataSocket(UniqueFd accepted,
                                              const std::shared_ptr<const PeerProofs>& proofs,
                                              const std::string& peer) {
  if (proofs == nullptr) return std::make_unique<StreamSocket>(std::move(accepted));
  return std::make_unique<StreamSocket>(
      std::move(accepted),
      proofs->Make(PeerSide::kListener, kDataPurpose),
      PeerSide::kListener,
      [proofs, peer](const Status& why) { proofs->OnRefused(kDataPurpose, peer, why); });
}

std::unique_ptr<FrameSocket> DialDataSocket(UniqueFd connecting, const PeerProofs* proofs) {
  std::unique_ptr<PeerProof> proof;
  if (proofs != nullptr) proof = proofs->Make(PeerSide::kDialler, kDataPurpose);
  return std::make_unique<StreamSocket>(
      std::move(connecting), std::move(proof), PeerSide::kDialler);
}

}  // namespace baton
