#include "kvtransfer/sideband/sending_end.h"

#include <algorithm>
#include <utility>

#include "common/base/take_front.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

Status ConnectionEnded(const Status& reason) {
  return MakeStatus(StatusCode::kUnavailable, "the data connection ended: {}", Message(reason));
}

}  // namespace

SendingEnd::SendingEnd(Mover& mover, Options options)
    : mover_(mover),
      source_bytes_(options.source_bytes),
      max_op_bytes_(options.max_op_bytes),
      connect_timeout_(options.connect_timeout),
      epoll_fd_(options.epoll_fd),
      takes_held_writes_(options.takes_held_writes),
      socket_(std::move(options.socket)) {
  // If watching fails, here and below, the periodic Poll calls of the user still move the channel
  // on.
  (void)WatchFd(epoll_fd_, socket_->fd());
}

void SendingEnd::Greet(BootId boot, uint32_t peer_region, std::string text) {
  SidebandFrame hello;
  hello.header.type = SidebandType::kHello;
  hello.header.key = boot.value();
  hello.header.op = peer_region;
  hello.text = std::move(text);
  Send(hello);
}

StatusOr<OpId> SendingEnd::Accept(const WriteOp& op) {
  if (!status_.ok()) return status_;
  if (op.runs.size() > kMaxSidebandRecords) {
    return InvalidArgument(
        "a write of {} runs; at most {} are allowed", op.runs.size(), kMaxSidebandRecords);
  }
  if (op.held && !takes_held_writes_) {
    return InvalidArgument("a held write, but this transport does not prefer bursts");
  }
  Op accepted;
  BATON_ASSIGN_OR_RETURN(accepted.header, HeaderOf(op, next_op_, source_bytes_));
  if (accepted.header.payload_bytes > max_op_bytes_) {
    return InvalidArgument("a write of {} bytes; this transport takes at most {}",
                           accepted.header.payload_bytes,
                           max_op_bytes_);
  }
  if (ops_.size() >= kMaxOutstandingOps) {
    return MakeStatus(StatusCode::kResourceExhausted, "{} writes are outstanding", ops_.size());
  }
  accepted.runs.assign(op.runs.begin(), op.runs.end());
  accepted.destinations = DestinationRanges(op.runs);
  accepted.held = op.held;
  ops_.emplace(next_op_, std::move(accepted));
  return OpId(next_op_++);
}

SendingEnd::Op* SendingEnd::Find(uint64_t id) {
  const auto found = ops_.find(id);
  return found == ops_.end() ? nullptr : &found->second;
}

void SendingEnd::Receive(Time now) {
  if (!status_.ok()) return;
  if (connect_until_ == Time{}) connect_until_ = now + connect_timeout_;
  if (!is_connected_ && now >= connect_until_) {
    return Die(MakeStatus(StatusCode::kUnavailable,
                          "connect: no answer for {:.1f} s",
                          ToSeconds(connect_timeout_)),
               WriteEvent::Kind::kFailed);
  }
  ReceiveFrames();
}

void SendingEnd::ReceiveFrames() {
  while (status_.ok()) {
    StatusOr<std::optional<SidebandFrame>> frame = socket_->Receive();
    Status problem = frame.status();
    if (problem.ok() && !frame->has_value()) return;
    if (problem.ok()) problem = OnFrame(**std::move(frame));
    if (!problem.ok()) Die(ConnectionEnded(problem), WriteEvent::Kind::kFailed);
  }
}

Status SendingEnd::OnFrame(SidebandFrame frame) {
  OnProgress();
  if (frame.header.type == SidebandType::kAck) return OnAck(frame.header);
  if (frame.header.type != SidebandType::kWelcome) return mover_.OnFrame(std::move(frame));
  if (is_connected_) return InvalidArgument("the peer sent a second welcome");
  BATON_RETURN_IF_ERROR(mover_.OnWelcome(frame));
  is_connected_ = true;
  return OkStatus();
}

Status SendingEnd::OnAck(const SidebandHeader& header) {
  Op* const op = Find(header.op);
  BATON_RETURN_IF_ERROR(mover_.CheckAck(header.op, op));
  if (op == nullptr) return OkStatus();  // it was aborted meanwhile
  if (header.code == 0) {
    op->acknowledged = true;
    EndIfIdle(header.op);
    return OkStatus();
  }
  const auto code = static_cast<StatusCode>(
      std::min<uint32_t>(header.code, static_cast<uint32_t>(StatusCode::kUnauthenticated)));
  EndLater(header.op,
           WriteEvent::Kind::kFailed,
           MakeStatus(code, "the peer refused write {} with code {}", header.op, header.code));
  return OkStatus();
}

void SendingEnd::EndLater(uint64_t id, WriteEvent::Kind kind, const Status& status) {
  Op* const op = Find(id);
  if (op == nullptr) return;
  if (!op->verdict) op->verdict = WriteEvent{OpId(id), kind, status, {}};
  EndIfIdle(id);
}

void SendingEnd::EndAllLater(WriteEvent::Kind kind,
                             const Status& status,
                             const std::function<bool(const Op&)>& concerns) {
  for (auto op = ops_.begin(); op != ops_.end();) {
    const auto next = std::next(op);
    if (concerns(op->second)) EndLater(op->first, kind, status);
    op = next;
  }
}

void SendingEnd::EndIfIdle(uint64_t id) {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return;
  Op& op = found->second;
  if (op.moving || op.summing || (!op.verdict && !op.acknowledged)) return;
  if (op.kept && status_.ok()) return;
  events_.push_back(op.verdict ? *std::move(op.verdict) : WriteEvent{OpId(id), {}, OkStatus(), {}});
  ops_.erase(found);
}

void SendingEnd::ReportChecksums(uint64_t id, std::vector<uint64_t> checksums) {
  events_.push_back({OpId(id), WriteEvent::Kind::kChecksums, OkStatus(), std::move(checksums)});
}

void SendingEnd::RequestAbort(OpId op) {
  EndLater(
      op.value(), WriteEvent::Kind::kAborted, MakeStatus(StatusCode::kAborted, "abort requested"));
}

void SendingEnd::Fence() {
  ++fences_;
  Die(MakeStatus(StatusCode::kAborted, "the channel was fenced"), WriteEvent::Kind::kAborted);
  LeaveIfIdle();
}

void SendingEnd::Die(const Status& reason, WriteEvent::Kind kind) {
  if (status_.ok()) {
    status_ = reason;
    mover_.StopMoving();
  }
  EndAllLater(kind, reason, [](const Op&) { return true; });
}

void SendingEnd::Abandon() {
  ops_.clear();
  LeaveIfIdle();
}

void SendingEnd::LeaveIfIdle() {
  if (!ops_.empty()) return;
  if (socket_) {
    mover_.OnLeave();
    socket_.reset();
  }
  for (; fences_ > 0; --fences_) {
    events_.push_back({OpId(), WriteEvent::Kind::kFenced, OkStatus(), {}});
  }
}

void SendingEnd::Flush() {
  has_queued_ = false;
  if (!status_.ok()) return;
  if (const Status sent = socket_->Flush(); !sent.ok()) {
    Die(ConnectionEnded(sent), WriteEvent::Kind::kFailed);
  }
}

void SendingEnd::Send(const SidebandFrame& frame) {
  Queue(frame);
  Flush();
}

void SendingEnd::Queue(const SidebandFrame& frame) {
  if (!status_.ok()) return;
  socket_->Queue(frame);
  has_queued_ = true;
}

size_t SendingEnd::Finish(std::span<WriteEvent> events) {
  if (!status_.ok()) LeaveIfIdle();
  WatchSocket();
  return TakeFront(events_, events);
}

void SendingEnd::WatchSocket() {
  // Frames that wait for the next Flush do not wait for the socket.
  if (!socket_ || has_queued_ || (socket_->waiting() > 0) == watches_write_) return;
  watches_write_ = !watches_write_;
  (void)WatchFd(
      epoll_fd_, socket_->fd(), EPOLLIN | (watches_write_ ? EPOLLOUT : 0u), EPOLL_CTL_MOD);
}

bool SendingEnd::MovedLately(Time now) {
  return progress_.IsRecent(now) && status_.ok();
}

}  // namespace baton
