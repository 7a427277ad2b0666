#include "kvtransfer/wire/frame_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/take_front.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

constexpr size_t kMaxParts = 64;
// One Poll sends at most this much, so that one channel does not delay the others.
constexpr uint64_t kQuantum = uint64_t{4} << 20;

}  // namespace

FrameChannel::FrameChannel(Options options)
    : socket_(std::move(options.socket)),
      epoll_fd_(options.epoll_fd),
      source_(options.source),
      preface_(options.preface),
      preface_out_(reinterpret_cast<const char*>(&preface_), sizeof(preface_)),
      descriptors_(std::move(options.descriptors)),
      slots_(std::move(options.slots)),
      staging_(std::move(options.staging)),
      connect_timeout_(options.connect_timeout),
      proof_(std::move(options.proof)),
      proof_out_(proof_ == nullptr ? "" : proof_->Begin()) {
  watched_ = EPOLLIN | EPOLLOUT;
  if (const Status status = WatchFd(epoll_fd_, socket_.get(), watched_); !status.ok()) {
    Die(Status(StatusCode::kUnavailable, status.message()), WriteEvent::Kind::kFailed);
  }
}

FrameChannel::~FrameChannel() {
  Die(MakeStatus(StatusCode::kCancelled, "channel destroyed"), WriteEvent::Kind::kAborted);
}

StatusOr<OpId> FrameChannel::PostWrite(const WriteOp& op) {
  if (!status_.ok()) return status_;
  if (op.held) return InvalidArgument("held writes need a transport that prefers bursts");
  Op queued;
  BATON_ASSIGN_OR_RETURN(queued.header, HeaderOf(op, next_op_, source_.bytes));
  if (staging_ != nullptr && queued.header.payload_bytes > StagingBuffers::kBufferBytes) {
    return InvalidArgument("a write of {} bytes from a GPU's memory; at most {} are allowed",
                           queued.header.payload_bytes,
                           StagingBuffers::kBufferBytes);
  }
  if (queue_.size() + sent_.size() >= kMaxOutstandingOps ||
      (slots_ != nullptr && !slots_->Start(next_op_))) {
    return MakeStatus(
        StatusCode::kResourceExhausted, "{} writes are outstanding", queue_.size() + sent_.size());
  }
  queued.runs.assign(op.runs.begin(), op.runs.end());
  if (op.granule > 0 && (staging_ == nullptr || op.runs.empty())) {
    std::vector<iovec> parts;
    ForPayload(queued, [&](std::byte* data, uint64_t bytes) {
      parts.push_back({data, bytes});
      return true;
    });
    ReportChecksums(queued.header, parts);
  }
  queue_.push_back(std::move(queued));
  return OpId(next_op_++);
}

void FrameChannel::ReportChecksums(const WriteHeader& header, std::span<const iovec> parts) {
  hasher_.Start(header.granule);
  for (const iovec& part : parts) {
    hasher_.Update({static_cast<const std::byte*>(part.iov_base), part.iov_len});
  }
  events_.push_back({OpId(header.op), WriteEvent::Kind::kChecksums, OkStatus(), hasher_.Take()});
}

void FrameChannel::PumpStaging() {
  Status status = staging_->Poll();
  for (Op& op : queue_) {
    if (!status.ok()) break;
    if (is_ready(op)) continue;
    if (op.buffer < 0) {
      const StatusOr<int> buffer = staging_->Take();
      status = buffer.status();
      if (!status.ok() || *buffer < 0) break;
      op.buffer = *buffer;
      status = staging_->CopyOut(op.buffer, SourceRanges(op.runs));
    } else if (!staging_->is_busy(op.buffer)) {
      op.is_staged = true;
      const iovec payload{staging_->data(op.buffer), op.header.payload_bytes};
      if (op.header.granule > 0) ReportChecksums(op.header, {&payload, 1});
    }
  }
  if (!status.ok()) Die(status, WriteEvent::Kind::kFailed);
}

// After the return the GPU's memory is not read any more either.
void FrameChannel::FreeBuffer(Op& op) {
  if (op.buffer < 0) return;
  staging_->Wait(op.buffer);
  staging_->Free(op.buffer);
  op.buffer = -1;
}

uint64_t FrameChannel::FrameBytes(const Op& op) const {
  return sizeof(WriteHeader) + op.runs.size() * sizeof(WriteRun) +
         (is_inline() ? op.header.payload_bytes : 0) + 2 * tag_bytes();
}

template <class Add>
void FrameChannel::ForPayload(Op& op, const Add& add) {
  if (staging_ != nullptr) {
    if (op.buffer >= 0) (void)add(staging_->data(op.buffer), op.header.payload_bytes);
    return;
  }
  if (op.is_gathered) {
    (void)add(gathered_.data(), op.header.payload_bytes);
    return;
  }
  // Runs that continue each other are one part: a rank's heads lie together at one side.
  for (auto run = op.runs.begin(); run != op.runs.end();) {
    const uint64_t begin = run->source;
    uint64_t bytes = 0;
    for (; run != op.runs.end() && run->source == begin + bytes; ++run) bytes += run->bytes;
    if (!add(source_.data + begin, bytes)) return;
  }
}

void FrameChannel::Prepare(Op& op) {
  if (op.sent > 0) return;
  if (is_inline() && staging_ == nullptr && !op.is_gathered) Gather(op);
  if (sent_mac_ && !op.is_tagged) Tag(op);
}

void FrameChannel::Gather(Op& op) {
  size_t parts = 0;
  ForPayload(op, [&](std::byte* /*data*/, uint64_t /*bytes*/) { return ++parts > 0; });
  if (parts < 2 || op.header.payload_bytes / parts >= kMaxStagedRunBytes) return;
  gathered_.resize(op.header.payload_bytes);
  std::byte* to = gathered_.data();
  ForPayload(op, [&](const std::byte* data, uint64_t bytes) {
    std::memcpy(to, data, bytes);
    to += bytes;
    return true;
  });
  op.is_gathered = true;
}

void FrameChannel::Tag(Op& op) {
  sent_mac_->Update(std::as_bytes(std::span(&op.header, 1)));
  sent_mac_->Update(std::as_bytes(std::span(op.runs)));
  op.head_tag = sent_mac_->Finish();
  ForPayload(op, [&](const std::byte* data, uint64_t bytes) {
    sent_mac_->Update({data, bytes});
    return true;
  });
  op.payload_tag = sent_mac_->Finish();
  op.is_tagged = true;
}

// The unsent rest of the frame, as far as `parts` has room.
size_t FrameChannel::FrameParts(Op& op, std::span<iovec> parts) {
  size_t count = 0;
  uint64_t skip = op.sent;
  const auto add = [&](const void* data, uint64_t bytes) {
    if (skip >= bytes) {
      skip -= bytes;
    } else if (count < parts.size()) {
      parts[count++] = {static_cast<char*>(const_cast<void*>(data)) + skip, bytes - skip};
      skip = 0;
    }
    return count < parts.size();
  };
  add(&op.header, sizeof(op.header));
  add(op.runs.data(), op.runs.size() * sizeof(WriteRun));
  add(op.head_tag.data(), tag_bytes());
  if (is_inline()) ForPayload(op, add);
  add(op.payload_tag.data(), tag_bytes());
  return count;
}

size_t FrameChannel::Poll(Time now, std::span<WriteEvent> events) {
  if (status_.ok()) {
    if (!connected_ || !is_proven()) CheckConnected(now);
    if (status_.ok() && staging_ != nullptr) PumpStaging();
    if (status_.ok() && connected_) {
      SendQueued();
      if (status_.ok()) ReceiveAcks();
    }
    rate_.OnPoll(now, !sent_.empty() || !queue_.empty());
    if (status_.ok()) WatchSocket();
  }
  return TakeFront(events_, events);
}

void FrameChannel::CheckConnected(Time now) {
  if (connect_until_ == Time{}) connect_until_ = now + connect_timeout_;
  int error = 0;
  socklen_t length = sizeof(error);
  sockaddr_storage peer{};
  socklen_t peer_length = sizeof(peer);
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0 &&
      ::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0) {
    connected_ = true;
  } else if (error != 0) {
    Die(MakeStatus(StatusCode::kUnavailable, "connect: {}", std::strerror(error)),
        WriteEvent::Kind::kFailed);
  } else if (now >= connect_until_) {
    Die(MakeStatus(StatusCode::kUnavailable,
                   "connect: no answer for {:.1f} s",
                   ToSeconds(connect_timeout_)),
        WriteEvent::Kind::kFailed);
  }
}

bool FrameChannel::SendProof() {
  while (!proof_out_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), proof_out_.data(), proof_out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        Die(MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno)),
            WriteEvent::Kind::kFailed);
      }
      return false;
    }
    proof_out_.erase(0, static_cast<size_t>(sent));
  }
  return is_proven();
}

void FrameChannel::TakeProof(std::string_view& bytes) {
  while (!is_proven() && !bytes.empty() && status_.ok()) {
    const size_t part = std::min(kPeerProofBytes - proof_in_.size(), bytes.size());
    proof_in_ += bytes.substr(0, part);
    bytes.remove_prefix(part);
    if (proof_in_.size() < kPeerProofBytes) return;
    const StatusOr<std::string> answer = proof_->OnMessage(std::exchange(proof_in_, {}));
    if (!answer.ok()) return Die(answer.status(), WriteEvent::Kind::kFailed);
    proof_out_ += *answer;
    if (is_proven()) OnProven();
  }
}

void FrameChannel::OnProven() {
  if ((preface_.flags & kAuthenticated) == 0) return;
  sent_mac_ = proof_->MakeMac(PeerSide::kDialler);
  received_mac_ = proof_->MakeMac(PeerSide::kListener);
  sent_mac_->Update(std::as_bytes(std::span(&preface_, 1)));
  const MacTag tag = sent_mac_->Finish();
  preface_out_.append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

bool FrameChannel::SendPreface() {
  while (preface_sent_ < preface_out_.size()) {
    iovec part{preface_out_.data() + preface_sent_, preface_out_.size() - preface_sent_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 2)] = {};
    if (!descriptors_.empty()) {
      int fds[2];
      for (size_t i = 0; i < descriptors_.size(); ++i) fds[i] = descriptors_[i].get();
      const size_t bytes = descriptors_.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(header), fds, bytes);
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        Die(MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno)),
            WriteEvent::Kind::kFailed);
      }
      return false;
    }
    descriptors_.clear();
    preface_sent_ += static_cast<size_t>(sent);
  }
  return true;
}

void FrameChannel::SendQueued() {
  if (!SendProof() || !SendPreface()) return;
  uint64_t budget = kQuantum;
  while (!queue_.empty() && budget > 0 && is_ready(queue_.front())) {
    Op& op = queue_.front();
    Prepare(op);
    std::array<iovec, kMaxParts> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = FrameParts(op, parts);
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return Die(MakeStatus(StatusCode::kUnavailable, "send: {}", std::strerror(errno)),
                 WriteEvent::Kind::kFailed);
    }
    op.sent += static_cast<uint64_t>(sent);
    budget -= std::min(budget, static_cast<uint64_t>(sent));
    if (op.sent == FrameBytes(op)) AfterSend();
  }
}

// The first operation of the queue is completely in the socket.
void FrameChannel::AfterSend() {
  Op op = std::move(queue_.front());
  queue_.pop_front();
  FreeBuffer(op);
  sent_.emplace(op.header.op, op.header.payload_bytes);
  if (op.abort_requested) {
    End(op.header.op,
        WriteEvent::Kind::kAborted,
        MakeStatus(StatusCode::kAborted, "abort requested"));
  }
}

void FrameChannel::ReceiveAcks() {
  while (status_.ok()) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return Die(MakeStatus(StatusCode::kUnavailable, "receive: {}", std::strerror(errno)),
                 WriteEvent::Kind::kFailed);
    }
    if (got == 0) {
      return Die(MakeStatus(StatusCode::kUnavailable,
                            "the peer closed the data connection{}",
                            is_proven() ? ""
                                        : " during the handshake; its log says why (compare "
                                          "security.cluster_secret_file of both)"),
                 WriteEvent::Kind::kFailed);
    }
    std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    TakeProof(bytes);
    while (!bytes.empty() && status_.ok()) {
      const size_t whole = sizeof(WriteAck) + tag_bytes();
      const size_t part = std::min(whole - ack_filled_, bytes.size());
      std::memcpy(ack_.data() + ack_filled_, bytes.data(), part);
      bytes.remove_prefix(part);
      ack_filled_ += part;
      if (ack_filled_ < whole) break;
      ack_filled_ = 0;
      OnAckBytes();
    }
    if (static_cast<size_t>(got) < buffer.size()) return;
  }
}

void FrameChannel::OnAckBytes() {
  WriteAck ack;
  std::memcpy(&ack, ack_.data(), sizeof(ack));
  if (received_mac_) {
    MacTag tag;
    std::memcpy(tag.data(), ack_.data() + sizeof(ack), tag.size());
    received_mac_->Update(std::as_bytes(std::span(&ack, 1)));
    const Status checked = CheckTag(tag, received_mac_->Finish(), "an acknowledgement");
    if (!checked.ok()) {
      return Die(MakeStatus(StatusCode::kUnavailable, "{}", Message(checked)),
                 WriteEvent::Kind::kFailed);
    }
  }
  OnAck(ack);
}

void FrameChannel::OnAck(const WriteAck& ack) {
  if (ack.magic != kAckMagic || ack.op == 0 || ack.op >= next_op_) {
    return Die(MakeStatus(StatusCode::kUnavailable,
                          "the peer acknowledged write {} with magic {:#010x}",
                          ack.op,
                          ack.magic),
               WriteEvent::Kind::kFailed);
  }
  const auto found = sent_.find(ack.op);
  if (found == sent_.end()) return;  // it was aborted meanwhile
  rate_.OnMoved(found->second);
  if (ack.code == 0) return End(ack.op, WriteEvent::Kind::kDone, OkStatus());
  const auto code = static_cast<StatusCode>(
      std::min<uint32_t>(ack.code, static_cast<uint32_t>(StatusCode::kUnauthenticated)));
  End(ack.op,
      WriteEvent::Kind::kFailed,
      MakeStatus(code, "the peer refused write {} with code {}", ack.op, ack.code));
}

void FrameChannel::End(uint64_t op, WriteEvent::Kind kind, Status status) {
  if (slots_ != nullptr) {
    // The receiver never counts a write that it refuses. A write that it has counted is done, even
    // if we wanted to abort it.
    const bool taken_back = kind != WriteEvent::Kind::kDone && slots_->TakeBack(op);
    if (!taken_back) {
      slots_->Free(op);
      if (kind == WriteEvent::Kind::kAborted) {
        kind = WriteEvent::Kind::kDone;
        status = OkStatus();
      }
    }
  }
  sent_.erase(op);
  events_.push_back({OpId(op), kind, std::move(status), {}});
}

void FrameChannel::RequestAbort(OpId id) {
  const Status reason = MakeStatus(StatusCode::kAborted, "abort requested");
  if (sent_.contains(id.value())) {
    // The source is free: the socket holds a copy of it (tcp), or the slot settles the write (shm).
    return End(id.value(), WriteEvent::Kind::kAborted, reason);
  }
  const auto found = std::find_if(
      queue_.begin(), queue_.end(), [&](const Op& op) { return op.header.op == id.value(); });
  if (found == queue_.end()) return;
  if (found->sent > 0 || found->is_tagged) {
    found->abort_requested = true;
    return;
  }
  FreeBuffer(*found);
  queue_.erase(found);
  End(id.value(), WriteEvent::Kind::kAborted, reason);
}

void FrameChannel::Fence() {
  Die(MakeStatus(StatusCode::kAborted, "the channel was fenced"), WriteEvent::Kind::kAborted);
  events_.push_back({OpId(), WriteEvent::Kind::kFenced, OkStatus(), {}});
}

void FrameChannel::Die(const Status& reason, WriteEvent::Kind kind) {
  if (status_.ok()) status_ = reason;
  socket_.Reset();
  std::vector<uint64_t> open;
  for (const auto& [op, bytes] : sent_) open.push_back(op);
  for (Op& op : queue_) {
    FreeBuffer(op);
    open.push_back(op.header.op);
  }
  queue_.clear();
  std::sort(open.begin(), open.end());
  for (const uint64_t op : open) {
    // The receiver may have counted the write although its acknowledgement has not arrived.
    const bool lost = slots_ == nullptr || slots_->TakeBack(op);
    if (lost) {
      sent_.erase(op);
      events_.push_back({OpId(op), kind, reason, {}});
    } else {
      End(op, WriteEvent::Kind::kDone, OkStatus());
    }
  }
}

void FrameChannel::WatchSocket() {
  const bool has_frame =
      preface_sent_ < preface_out_.size() || (!queue_.empty() && is_ready(queue_.front()));
  const bool wants_write = !connected_ || !proof_out_.empty() || (is_proven() && has_frame);
  const uint32_t wanted = EPOLLIN | (wants_write ? EPOLLOUT : 0u);
  if (wanted == watched_) return;
  watched_ = wanted;
  // If this fails, the periodic Poll calls of the user still move the channel on.
  (void)WatchFd(epoll_fd_, socket_.get(), wanted, EPOLL_CTL_MOD);
}

}  // namespace baton
