#include "kvtransfer/one_sided/channel.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/sideband/copy_id.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

// Copies take milliseconds. A copy that takes longer than this will not end.
constexpr Duration kLongestCopies = std::chrono::seconds(5);
constexpr int kPollMs = 10;
// After starting writes of this many bytes, landed ones are reported, so that the receiver computes
// their checksums while further ones are started. More often does not pay: the checksums of writes
// that were started together are computed by one kernel.
constexpr uint64_t kReportBytes = uint64_t{16} << 20;
// The most windows of one channel, and ranges of them: a receiver gives windows unasked.
constexpr size_t kMaxKeptRanges = 2 * size_t{kMaxWindowRanges};

SidebandFrame FrameOf(SidebandType type, uint64_t key) {
  SidebandFrame frame;
  frame.header.type = type;
  frame.header.key = key;
  return frame;
}

}  // namespace

OneSidedChannel::OneSidedChannel(Options options)
    : copier_(std::move(options.copier)),
      end_(*this,
           {.socket = std::move(options.socket),
            .epoll_fd = options.epoll_fd,
            .source_bytes = options.source_bytes,
            .connect_timeout = options.connect_timeout,
            .takes_held_writes = options.takes_held_writes}),
      busy_polls_(options.busy_polls) {
  // If watching fails, the periodic Poll calls of the user still move the channel on.
  (void)WatchFd(options.epoll_fd, copier_->wait_fd());
  end_.Greet(options.boot, options.peer_region, copier_->Greeting());
}

OneSidedChannel::~OneSidedChannel() {
  end_.Die(MakeStatus(StatusCode::kCancelled, "channel destroyed"), WriteEvent::Kind::kAborted);
  const SteadyClock clock;
  const Time limit = clock.Now() + kLongestCopies;
  while (!end_.ops().empty() && clock.Now() < limit) {
    copier_->WatchEnds();
    pollfd done{copier_->wait_fd(), POLLIN, 0};
    (void)::poll(&done, 1, kPollMs);
    TakeDone();
  }
  copies_are_lost_ |= !end_.ops().empty();
  end_.Abandon();
}

StatusOr<OpId> OneSidedChannel::PostWrite(const WriteOp& op) {
  BATON_ASSIGN_OR_RETURN(const OpId id, end_.Accept(op));
  queued_.push_back(id.value());
  return id;
}

void OneSidedChannel::Start(OpId op) {
  if (Op* const found = end_.Find(op.value()); found != nullptr) found->held = false;
}

size_t OneSidedChannel::Poll(Time now, std::span<WriteEvent> events) {
  end_.Flush();
  end_.Receive(now);
  if (end_.status().ok()) StartQueued();
  if (copier_) TakeDone();
  rate_.OnPoll(now, copies_ > 0);
  JudgePolling(now);
  if (copier_ && !wants_poll_) copier_->WatchEnds();
  // The caller may answer events with SEAL, which then goes with the frames that wait.
  if (!end_.has_events()) end_.Flush();
  return end_.Finish(events);
}

Status OneSidedChannel::OnFrame(SidebandFrame frame) {
  switch (frame.header.type) {
    case SidebandType::kWindow:
      return OnWindow(frame);
    case SidebandType::kClose:
      OnClose(frame.header.key);
      return OkStatus();
    default:
      return InvalidArgument("a receiver does not send frames of type {}",
                             static_cast<uint16_t>(frame.header.type));
  }
}

Status OneSidedChannel::OnWelcome(const SidebandFrame& frame) {
  return copier_->Connect(frame.text);
}

Status OneSidedChannel::OnWindow(const SidebandFrame& frame) {
  const uint64_t key = frame.header.key;
  const auto found = windows_.find(key);
  if (found != windows_.end() && found->second.given) {
    return InvalidArgument("the peer gave a write window that this side has");
  }
  if (frame.header.code != 0) {
    if (found == windows_.end() || !found->second.asked) {
      return InvalidArgument("the peer refused a write window that was not requested");
    }
    windows_.erase(found);
    end_.EndAllLater(WriteEvent::Kind::kFailed,
                     MakeStatus(StatusCode::kNotFound, "the peer has no such write window"),
                     [&](const Op& op) { return op.header.window_key == key; });
    return OkStatus();
  }
  Window& window = windows_[key];
  if (frame.header.bytes > kMaxWindowRanges ||
      window.ranges.size() + frame.ranges.size() > frame.header.bytes) {
    return InvalidArgument(
        "a write window states {} ranges; that is too many, or fewer than were sent",
        frame.header.bytes);
  }
  window.ranges.insert(window.ranges.end(), frame.ranges.begin(), frame.ranges.end());
  window.given = window.ranges.size() == frame.header.bytes;
  if (!HasTooManyWindows()) return OkStatus();
  return InvalidArgument("the peer gave {} write windows; their ranges are too many",
                         windows_.size());
}

bool OneSidedChannel::HasTooManyWindows() const {
  size_t kept = windows_.size();
  for (const auto& [key, window] : windows_) kept += window.ranges.size();
  return kept > kMaxKeptRanges;
}

void OneSidedChannel::OnClose(uint64_t key) {
  Window& window = windows_[key];
  // The window was given back before, and is asked for again: the receiver refuses that.
  if (window.asked && !window.given) return;
  // Bar further copies first; only then check which copies are under way.
  window.closing = true;
  end_.EndAllLater(WriteEvent::Kind::kFailed,
                   MakeStatus(StatusCode::kAborted, "the peer closed the write window"),
                   [&](const Op& op) { return op.header.window_key == key && !IsReported(op); });
  ConfirmIfDrained(key);
}

void OneSidedChannel::ConfirmIfDrained(uint64_t key) {
  const auto found = windows_.find(key);
  if (found == windows_.end() || found->second.copies > 0) return;
  const Window& window = found->second;
  if (!window.closing && (!window.given || !window.released || IsQueued(key))) return;
  windows_.erase(found);
  end_.Send(FrameOf(SidebandType::kDrained, key));
}

bool OneSidedChannel::IsQueued(uint64_t key) const {
  return std::ranges::any_of(end_.ops(), [&](const auto& entry) {
    const Op& op = entry.second;
    return op.header.window_key == key && !op.started && !op.verdict;
  });
}

void OneSidedChannel::Release(uint64_t window_key) {
  const auto found = windows_.find(window_key);
  if (found == windows_.end()) return;
  found->second.released = true;
  ConfirmIfDrained(window_key);
  end_.Flush();
}

bool OneSidedChannel::PostNote(uint64_t window_key, std::string_view note) {
  const auto found = windows_.find(window_key);
  if (!end_.status().ok() || note.size() > kMaxSidebandNoteBytes || found == windows_.end())
    return false;
  if (!found->second.given || found->second.closing) return false;
  SidebandFrame frame = FrameOf(SidebandType::kNote, window_key);
  frame.text = note;
  end_.Queue(frame);
  return end_.status().ok();
}

Status OneSidedChannel::CheckAck(uint64_t id, const Op* op) {
  if (op == nullptr) {
    if (id > 0 && id <= end_.last_op()) return OkStatus();  // it was aborted meanwhile
    return InvalidArgument(
        "write {} was acknowledged, but the last write is {}", id, end_.last_op());
  }
  if (IsReported(*op)) return OkStatus();
  return InvalidArgument("write {} was acknowledged before it was reported", id);
}

bool OneSidedChannel::IsReported(const Op& op) const {
  return op.started && (copier_->marks_copies() || !op.moving);
}

void OneSidedChannel::StartQueued() {
  if (!end_.is_connected()) return;
  std::deque<uint64_t> keep;
  uint64_t started = 0;  // bytes since the last report
  for (const uint64_t id : std::exchange(queued_, {})) {
    if (started >= kReportBytes && !copier_->marks_copies()) {
      TakeDone();
      end_.Flush();
      started = 0;
    }
    Op* const op = end_.Find(id);
    if (op == nullptr || op->verdict) continue;
    const uint64_t bytes = op->header.payload_bytes;
    if (end_.status().ok() && TryStart(*op)) {
      started += bytes;
    } else {
      keep.push_back(id);
    }
  }
  queued_ = std::move(keep);
}

bool OneSidedChannel::TryStart(Op& op) {
  if (op.held && op.sums_asked) return false;
  const uint64_t key = op.header.window_key;
  const auto found = windows_.find(key);
  if (found == windows_.end()) {
    windows_[key].asked = true;
    end_.Send(FrameOf(SidebandType::kAsk, key));
    end_.OnProgress();
    return false;
  }
  const Window& window = found->second;
  // A closing window is erased when its close is confirmed; the next attempt then asks the peer
  // again.
  if (!window.given || window.closing) return false;
  const ByteRange all{0, copier_->peer_bytes()};
  Status allowed = CheckDestinations(op.destinations, window.ranges);
  if (allowed.ok()) allowed = CheckDestinations(op.destinations, {&all, 1});
  const bool held = op.held;
  if (allowed.ok()) allowed = held ? StartSums(op) : StartCopy(op);
  if (!allowed.ok()) end_.EndLater(op.header.op, WriteEvent::Kind::kFailed, allowed);
  return !held || !allowed.ok();
}

Status OneSidedChannel::StartCopy(Op& op) {
  BATON_ASSIGN_OR_RETURN(op.mark, copier_->Copy(MoveId(op.header.op), op.runs));
  op.started = op.moving = true;
  end_.OnProgress();
  ++copies_;
  if (copier_->marks_copies()) {
    SendLanded(op);
  } else {
    ++windows_[op.header.window_key].copies;
  }
  return StartSums(op);
}

Status OneSidedChannel::StartSums(Op& op) {
  if (op.sums_asked) return OkStatus();
  op.sums_asked = true;
  if (op.header.granule == 0) return OkStatus();
  BATON_RETURN_IF_ERROR(
      copier_->Checksum(ChecksumId(op.header.op), SourceRanges(op.runs), op.header.granule));
  op.summing = true;
  return OkStatus();
}

void OneSidedChannel::TakeDone() {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = copier_->Poll(done);
    if (count > 0) end_.OnProgress();
    for (DmaDone& end : std::span(done).first(count)) {
      const uint64_t id = OpOf(end.id);
      Op& op = *end_.Find(id);  // an operation stays until the copier's work on it is done
      if (IsChecksum(end.id)) {
        OnSummed(op, std::move(end));
      } else {
        OnCopied(op, end.status);
      }
      // The handler may have found the connection broken and ended the operation.
      end_.EndIfIdle(id);
    }
  } while (count == done.size());
}

void OneSidedChannel::OnCopied(Op& op, const Status& status) {
  op.moving = false;
  --copies_;
  rate_.OnMoved(op.header.payload_bytes);
  if (!status.ok()) {
    copies_are_lost_ = true;
    return end_.Die(status, WriteEvent::Kind::kFailed);
  }
  const uint64_t key = op.header.window_key;
  if (!copier_->marks_copies()) {
    --windows_[key].copies;
    if (!op.verdict) SendLanded(op);
  }
  ConfirmIfDrained(key);
}

void OneSidedChannel::JudgePolling(Time now) {
  const auto waits = [&](const auto& entry) {
    const Op& op = entry.second;
    if (op.started) return true;
    const auto window = windows_.find(op.header.window_key);
    return window != windows_.end() && !window->second.given;
  };
  wants_poll_ = busy_polls_ && end_.MovedLately(now) && std::ranges::any_of(end_.ops(), waits);
}

void OneSidedChannel::SendLanded(const Op& op) {
  SidebandFrame landed = FrameOf(SidebandType::kLanded, op.header.window_key);
  landed.header.op = op.header.op;
  landed.header.code = op.mark;
  landed.header.tag = op.header.tag;
  landed.header.granule = op.header.granule;
  landed.header.bytes = op.header.payload_bytes;
  landed.ranges = op.destinations;
  end_.Queue(landed);
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
  if (!op.verdict) end_.ReportChecksums(op.header.op, std::move(done.checksums));
}

void OneSidedChannel::OnLeave() {
  if (!copies_are_lost_) end_.SendLast(FrameOf(SidebandType::kBye, 0));
  copier_.reset();
  windows_.clear();
}

}  // namespace baton
