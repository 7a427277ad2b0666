#include "kvtransfer/one_sided/channel.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kvtransfer/epoll.h"

namespace baton {
namespace {

// Copies take milliseconds. A copy that takes longer than this will not end.
constexpr Duration kLongestCopies = std::chrono::seconds(5);
constexpr int kPollMs = 10;
// Longest busy-polling without an event: a peer that has not answered by then will not answer soon.
constexpr Duration kLongestPolling = std::chrono::milliseconds(2);
// The weight of the earlier measurements of the rate, relative to a new one.
constexpr double kKeepOfRate = 0.8;

// The ids of an operation in the copier: one for its copy, one for its checksums.
constexpr uint64_t CopyId(uint64_t op) {
  return op << 1;
}
constexpr uint64_t ChecksumId(uint64_t op) {
  return op << 1 | 1;
}

OneSidedFrame FrameOf(OneSidedType type, uint64_t key) {
  OneSidedFrame frame;
  frame.header.type = type;
  frame.header.key = key;
  return frame;
}

}  // namespace

OneSidedChannel::OneSidedChannel(Options options)
    : epoll_fd_(options.epoll_fd),
      source_bytes_(options.source_bytes),
      connect_timeout_(options.connect_timeout),
      takes_held_writes_(options.takes_held_writes),
      socket_(std::move(options.socket)),
      copier_(std::move(options.copier)) {
  // If watching fails, here and below, the periodic Poll calls of the user still move the channel
  // on.
  (void)WatchFd(epoll_fd_, socket_->fd());
  (void)WatchFd(epoll_fd_, copier_->wait_fd());
  OneSidedFrame hello = FrameOf(OneSidedType::kHello, 0);
  hello.header.op = options.peer_region;
  hello.text = copier_->Greeting();
  Send(hello);
}

OneSidedChannel::~OneSidedChannel() {
  Die(MakeStatus(StatusCode::kCancelled, "channel destroyed"), WriteEvent::Kind::kAborted);
  const SteadyClock clock;
  const Time limit = clock.Now() + kLongestCopies;
  while (!ops_.empty() && clock.Now() < limit) {
    copier_->WatchEnds();
    pollfd done{copier_->wait_fd(), POLLIN, 0};
    (void)::poll(&done, 1, kPollMs);
    TakeDone();
  }
  copies_are_lost_ |= !ops_.empty();
  ops_.clear();
  Leave();
}

StatusOr<OpId> OneSidedChannel::PostWrite(const WriteOp& op) {
  if (!status_.ok()) return status_;
  if (op.runs.size() > kMaxOneSidedRecords) {
    return InvalidArgument(
        "a write of {} runs; at most {} are allowed", op.runs.size(), kMaxOneSidedRecords);
  }
  if (op.held && !takes_held_writes_) {
    return InvalidArgument("a held write, but this transport does not prefer bursts");
  }
  Op queued;
  BATON_ASSIGN_OR_RETURN(queued.header, HeaderOf(op, next_op_, source_bytes_));
  if (ops_.size() >= kMaxOutstandingOps) {
    return MakeStatus(StatusCode::kResourceExhausted, "{} writes are outstanding", ops_.size());
  }
  queued.runs.assign(op.runs.begin(), op.runs.end());
  queued.held = op.held;
  ops_.emplace(next_op_, std::move(queued));
  queued_.push_back(next_op_);
  return OpId(next_op_++);
}

void OneSidedChannel::Start(OpId op) {
  if (const auto found = ops_.find(op.value()); found != ops_.end()) found->second.held = false;
}

size_t OneSidedChannel::Poll(Time now, std::span<WriteEvent> events) {
  if (status_.ok()) {
    if (connect_until_ == Time{}) connect_until_ = now + connect_timeout_;
    if (!is_connected_ && now >= connect_until_) {
      Die(MakeStatus(StatusCode::kUnavailable,
                     "connect: no answer for {:.1f} s",
                     ToSeconds(connect_timeout_)),
          WriteEvent::Kind::kFailed);
    }
  }
  if (status_.ok()) ReceiveFrames();
  if (status_.ok()) StartQueued();
  if (copier_) TakeDone();
  MeasureRate(now);
  JudgePolling(now);
  if (copier_ && !wants_poll_) copier_->WatchEnds();
  if (status_.ok()) {
    if (const Status sent = socket_->Flush(); !sent.ok()) Die(sent, WriteEvent::Kind::kFailed);
  }
  if (!status_.ok()) Leave();
  WatchSocket();
  const size_t count = std::min(events.size(), events_.size());
  for (size_t i = 0; i < count; ++i) {
    events[i] = std::move(events_.front());
    events_.pop_front();
  }
  return count;
}

void OneSidedChannel::ReceiveFrames() {
  while (status_.ok()) {
    StatusOr<std::optional<OneSidedFrame>> frame = socket_->Receive();
    Status problem = frame.status();
    if (problem.ok() && !frame->has_value()) return;
    if (problem.ok()) problem = OnFrame(**std::move(frame));
    if (!problem.ok()) {
      Die(MakeStatus(StatusCode::kUnavailable, "the data connection ended: {}", Message(problem)),
          WriteEvent::Kind::kFailed);
    }
  }
}

Status OneSidedChannel::OnFrame(OneSidedFrame frame) {
  has_moved_ = true;
  switch (frame.header.type) {
    case OneSidedType::kWelcome:
      return OnWelcome(frame);
    case OneSidedType::kWindow:
      return OnWindow(frame);
    case OneSidedType::kClose:
      OnClose(frame.header.key);
      return OkStatus();
    case OneSidedType::kAck:
      return OnAck(frame.header);
    default:
      return InvalidArgument("a receiver does not send frames of type {}",
                             static_cast<uint16_t>(frame.header.type));
  }
}

Status OneSidedChannel::OnWelcome(const OneSidedFrame& frame) {
  if (is_connected_) return InvalidArgument("the peer sent a second welcome");
  BATON_RETURN_IF_ERROR(copier_->Connect(frame.text));
  is_connected_ = true;
  return OkStatus();
}

Status OneSidedChannel::OnWindow(const OneSidedFrame& frame) {
  const uint64_t key = frame.header.key;
  const auto found = windows_.find(key);
  if (found == windows_.end() || found->second.given) {
    return InvalidArgument("the peer gave a write window that was not requested");
  }
  Window& window = found->second;
  if (frame.header.code != 0) {
    windows_.erase(found);
    EndAllLater(WriteEvent::Kind::kFailed,
                MakeStatus(StatusCode::kNotFound, "the peer has no such write window"),
                [&](const Op& op) { return op.header.window_key == key; });
    return OkStatus();
  }
  if (frame.header.bytes > kMaxWindowRanges ||
      window.ranges.size() + frame.ranges.size() > frame.header.bytes) {
    return InvalidArgument(
        "a write window states {} ranges; that is too many, or fewer than were sent",
        frame.header.bytes);
  }
  window.ranges.insert(window.ranges.end(), frame.ranges.begin(), frame.ranges.end());
  window.given = window.ranges.size() == frame.header.bytes;
  return OkStatus();
}

void OneSidedChannel::OnClose(uint64_t key) {
  // Bar further copies first; only then check which copies are under way.
  windows_[key].closing = true;
  EndAllLater(WriteEvent::Kind::kFailed,
              MakeStatus(StatusCode::kAborted, "the peer closed the write window"),
              [&](const Op& op) {
                const bool landed = op.started && !op.copying;
                return op.header.window_key == key && !landed;
              });
  ConfirmIfDrained(key);
}

void OneSidedChannel::ConfirmIfDrained(uint64_t key) {
  const auto found = windows_.find(key);
  if (found == windows_.end() || found->second.copies > 0) return;
  const Window& window = found->second;
  if (!window.closing && (!window.given || !window.released || IsQueued(key))) return;
  windows_.erase(found);
  if (status_.ok()) Send(FrameOf(OneSidedType::kDrained, key));
}

bool OneSidedChannel::IsQueued(uint64_t key) const {
  return std::any_of(ops_.begin(), ops_.end(), [&](const auto& entry) {
    const Op& op = entry.second;
    return op.header.window_key == key && !op.started && !op.verdict;
  });
}

bool OneSidedChannel::IsCopying() const {
  return std::ranges::any_of(windows_, [](const auto& entry) { return entry.second.copies > 0; });
}

void OneSidedChannel::Release(uint64_t window_key) {
  const auto found = windows_.find(window_key);
  if (found == windows_.end()) return;
  found->second.released = true;
  ConfirmIfDrained(window_key);
}

bool OneSidedChannel::PostNote(uint64_t window_key, std::string_view note) {
  const auto found = windows_.find(window_key);
  if (!status_.ok() || note.size() > kMaxOneSidedNoteBytes || found == windows_.end()) return false;
  if (!found->second.given || found->second.closing) return false;
  OneSidedFrame frame = FrameOf(OneSidedType::kNote, window_key);
  frame.text = note;
  Send(frame);
  return status_.ok();
}

Status OneSidedChannel::OnAck(const OneSidedHeader& header) {
  const auto found = ops_.find(header.op);
  if (found == ops_.end()) {
    if (header.op > 0 && header.op < next_op_) return OkStatus();  // it was aborted meanwhile
    return InvalidArgument(
        "write {} was acknowledged, but the last write is {}", header.op, next_op_ - 1);
  }
  Op& op = found->second;
  if (!op.started || op.copying)
    return InvalidArgument("write {} was acknowledged before it landed", header.op);
  if (header.code == 0) {
    op.acknowledged = true;
    EndIfIdle(found);
    return OkStatus();
  }
  const auto code = static_cast<StatusCode>(
      std::min<uint32_t>(header.code, static_cast<uint32_t>(StatusCode::kUnauthenticated)));
  EndLater(found,
           WriteEvent::Kind::kFailed,
           MakeStatus(code, "the peer refused write {} with code {}", header.op, header.code));
  return OkStatus();
}

void OneSidedChannel::StartQueued() {
  if (!is_connected_) return;
  std::deque<uint64_t> keep;
  for (const uint64_t id : std::exchange(queued_, {})) {
    const auto found = ops_.find(id);
    if (found == ops_.end() || found->second.verdict) continue;
    if (!status_.ok() || !TryStart(found->second)) keep.push_back(id);
  }
  queued_ = std::move(keep);
}

bool OneSidedChannel::TryStart(Op& op) {
  if (op.held && op.sums_asked) return false;
  const uint64_t key = op.header.window_key;
  const auto found = windows_.find(key);
  if (found == windows_.end()) {
    windows_.emplace(key, Window());
    Send(FrameOf(OneSidedType::kAsk, key));
    has_moved_ = true;
    return false;
  }
  const Window& window = found->second;
  // A closing window is erased when its close is confirmed; the next attempt then asks the peer
  // again.
  if (!window.given || window.closing) return false;
  const ByteRange all{0, copier_->peer_bytes()};
  Status allowed = CheckDestinations(op.runs, window.ranges);
  if (allowed.ok()) allowed = CheckDestinations(op.runs, {&all, 1});
  const bool held = op.held;
  if (allowed.ok()) allowed = held ? StartSums(op) : StartCopy(op);
  if (!allowed.ok()) EndLater(ops_.find(op.header.op), WriteEvent::Kind::kFailed, allowed);
  return !held || !allowed.ok();
}

Status OneSidedChannel::StartCopy(Op& op) {
  BATON_ASSIGN_OR_RETURN(op.mark, copier_->Copy(CopyId(op.header.op), op.runs));
  op.started = op.copying = true;
  has_moved_ = true;
  ++windows_[op.header.window_key].copies;
  return StartSums(op);
}

Status OneSidedChannel::StartSums(Op& op) {
  if (op.sums_asked) return OkStatus();
  op.sums_asked = true;
  if (op.header.granule == 0) return OkStatus();
  std::vector<ByteRange> ranges;
  for (const WriteRun& run : op.runs) ranges.push_back({run.source, run.bytes});
  BATON_RETURN_IF_ERROR(copier_->Checksum(ChecksumId(op.header.op), ranges, op.header.granule));
  op.summing = true;
  return OkStatus();
}

void OneSidedChannel::TakeDone() {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = copier_->Poll(done);
    has_moved_ = has_moved_ || count > 0;
    for (DmaDone& end : std::span(done).first(count)) {
      const uint64_t id = end.id >> 1;
      Op& op = ops_.at(id);  // an operation stays until the copier's work on it is done
      if (end.id == CopyId(id)) {
        OnCopied(op, end.status);
      } else {
        OnSummed(op, std::move(end));
      }
      // The handler may have found the connection broken and ended the operation.
      if (const auto found = ops_.find(id); found != ops_.end()) EndIfIdle(found);
    }
  } while (count == done.size());
}

void OneSidedChannel::OnCopied(Op& op, const Status& status) {
  op.copying = false;
  busy_bytes_ += op.header.payload_bytes;
  if (!status.ok()) {
    copies_are_lost_ = true;
    return Die(status, WriteEvent::Kind::kFailed);
  }
  const uint64_t key = op.header.window_key;
  --windows_[key].copies;
  SendEnd(op);
  ConfirmIfDrained(key);
}

void OneSidedChannel::JudgePolling(Time now) {
  if (has_moved_) moved_ = now;
  has_moved_ = false;
  const auto waits = [&](const auto& entry) {
    const Op& op = entry.second;
    if (op.started) return true;
    const auto window = windows_.find(op.header.window_key);
    return window != windows_.end() && !window->second.given;
  };
  wants_poll_ = status_.ok() && now < moved_ + kLongestPolling && std::ranges::any_of(ops_, waits);
}

void OneSidedChannel::MeasureRate(Time now) {
  if (busy_since_ == Time{}) {
    if (IsCopying()) busy_since_ = now;
    busy_bytes_ = 0;  // copied between two Polls: too little to measure
    return;
  }
  if (IsCopying()) return;
  rate_bytes_ = kKeepOfRate * rate_bytes_ + static_cast<double>(busy_bytes_);
  rate_seconds_ = kKeepOfRate * rate_seconds_ + ToSeconds(now - busy_since_);
  busy_since_ = Time{};
  busy_bytes_ = 0;
}

double OneSidedChannel::bytes_per_second() const {
  return rate_seconds_ > 0 ? rate_bytes_ / rate_seconds_ : 0;
}

void OneSidedChannel::SendEnd(const Op& op) {
  OneSidedFrame landed = FrameOf(OneSidedType::kLanded, op.header.window_key);
  landed.header.op = op.header.op;
  landed.header.code = op.mark;
  if (op.verdict) {
    landed.header.type = OneSidedType::kTakenBack;
    return Send(landed);
  }
  landed.header.tag = op.header.tag;
  landed.header.granule = op.header.granule;
  landed.header.bytes = op.header.payload_bytes;
  landed.runs = op.runs;
  Send(landed);
}

void OneSidedChannel::OnSummed(Op& op, DmaDone done) {
  op.summing = false;
  if (!done.status.ok()) {
    if (!op.verdict) {
      op.verdict =
          WriteEvent{OpId(op.header.op), WriteEvent::Kind::kFailed, std::move(done.status), {}};
    }
    return;
  }
  if (op.verdict) return;
  events_.push_back(
      {OpId(op.header.op), WriteEvent::Kind::kChecksums, OkStatus(), std::move(done.checksums)});
}

void OneSidedChannel::EndLater(Ops::iterator op, WriteEvent::Kind kind, const Status& status) {
  if (!op->second.verdict) op->second.verdict = WriteEvent{OpId(op->first), kind, status, {}};
  EndIfIdle(op);
}

void OneSidedChannel::EndAllLater(WriteEvent::Kind kind,
                                  const Status& status,
                                  const std::function<bool(const Op&)>& concerns) {
  for (auto op = ops_.begin(); op != ops_.end();) {
    const auto next = std::next(op);
    if (concerns(op->second)) EndLater(op, kind, status);
    op = next;
  }
}

void OneSidedChannel::EndIfIdle(Ops::iterator found) {
  Op& op = found->second;
  if (op.copying || op.summing || (!op.verdict && !op.acknowledged)) return;
  events_.push_back(op.verdict ? *std::move(op.verdict)
                               : WriteEvent{OpId(found->first), {}, OkStatus(), {}});
  ops_.erase(found);
}

void OneSidedChannel::RequestAbort(OpId op) {
  const auto found = ops_.find(op.value());
  if (found == ops_.end()) return;
  EndLater(found, WriteEvent::Kind::kAborted, MakeStatus(StatusCode::kAborted, "abort requested"));
}

void OneSidedChannel::Fence() {
  ++fences_;
  Die(MakeStatus(StatusCode::kAborted, "the channel was fenced"), WriteEvent::Kind::kAborted);
  Leave();
}

void OneSidedChannel::Die(const Status& reason, WriteEvent::Kind kind) {
  if (status_.ok()) {
    status_ = reason;
    copier_->Fence();
  }
  EndAllLater(kind, reason, [](const Op&) { return true; });
}

void OneSidedChannel::Leave() {
  if (!ops_.empty()) return;
  if (socket_) {
    if (!copies_are_lost_) (void)socket_->Send(FrameOf(OneSidedType::kBye, 0));
    socket_.reset();
    copier_.reset();
    windows_.clear();
  }
  for (; fences_ > 0; --fences_) {
    events_.push_back({OpId(), WriteEvent::Kind::kFenced, OkStatus(), {}});
  }
}

void OneSidedChannel::Send(const OneSidedFrame& frame) {
  if (!status_.ok()) return;
  if (const Status sent = socket_->Send(frame); !sent.ok()) {
    Die(MakeStatus(StatusCode::kUnavailable, "the data connection ended: {}", Message(sent)),
        WriteEvent::Kind::kFailed);
  }
}

void OneSidedChannel::WatchSocket() {
  if (!socket_ || (socket_->waiting() > 0) == watches_write_) return;
  watches_write_ = !watches_write_;
  (void)WatchFd(
      epoll_fd_, socket_->fd(), EPOLLIN | (watches_write_ ? EPOLLOUT : 0u), EPOLL_CTL_MOD);
}

}  // namespace baton
