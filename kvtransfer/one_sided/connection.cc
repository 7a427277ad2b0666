#include "kvtransfer/one_sided/connection.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/one_sided/receiver.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

OneSidedConnection::OneSidedConnection(std::unique_ptr<FrameSocket> socket,
                                       std::string peer,
                                       uint64_t id,
                                       OneSidedReceiver& receiver,
                                       Time now)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      id_(id),
      receiver_(receiver),
      since_(now) {
  receiver_.OnConnected(id_, this);
}

OneSidedConnection::~OneSidedConnection() {
  receiver_.OnGone(id_, said_bye_);
}

Status OneSidedConnection::Step(Time, size_t quantum) {
  BATON_RETURN_IF_ERROR(broken_);
  BATON_RETURN_IF_ERROR(socket_->Flush());
  has_more_ = false;
  for (size_t read = 0; !IsCongested(); read += kMaxSidebandFrameBytes) {
    if (read > quantum || receiver_.is_behind()) {
      has_more_ = true;
      break;
    }
    BATON_ASSIGN_OR_RETURN(std::optional<SidebandFrame> frame, socket_->Receive());
    if (!frame) break;
    BATON_RETURN_IF_ERROR(OnFrame(*std::move(frame)));
  }
  (void)SendAnswers();
  return broken_;
}

bool OneSidedConnection::IsCongested() {
  if (socket_->waiting() < kMaxWaitingAnswers) return false;
  (void)SendAnswers();
  return socket_->waiting() >= kMaxWaitingAnswers;
}

Status OneSidedConnection::OnFrame(SidebandFrame frame) {
  if (said_bye_ || greeted_ == (frame.header.type == SidebandType::kHello)) {
    return InvalidArgument("a frame of type {} is not allowed at this point",
                           static_cast<uint16_t>(frame.header.type));
  }
  switch (frame.header.type) {
    case SidebandType::kHello:
      return OnHello(frame);
    case SidebandType::kLanded:
      BATON_RETURN_IF_ERROR(CheckLanded(frame));
      [[fallthrough]];
    case SidebandType::kAsk:
    case SidebandType::kDrained:
      BATON_RETURN_IF_ERROR(receiver_.OnReport(id_, std::move(frame)));
      return broken_;
    case SidebandType::kNote:
      receiver_.OnNote(id_, region_, frame);
      return OkStatus();
    case SidebandType::kBye:
      said_bye_ = true;
      return OkStatus();
    default:
      return InvalidArgument("a sender does not send frames of type {}",
                             static_cast<uint16_t>(frame.header.type));
  }
}

Status OneSidedConnection::OnHello(const SidebandFrame& frame) {
  if (frame.header.op > ~uint32_t{0})
    return InvalidArgument("region id {} exceeds 32 bits", frame.header.op);
  region_ = static_cast<uint32_t>(frame.header.op);
  boot_ = BootId(frame.header.key);
  SidebandFrame welcome;
  welcome.header.type = SidebandType::kWelcome;
  BATON_ASSIGN_OR_RETURN(welcome.text, receiver_.OpenAccess(id_, region_, frame.text));
  greeted_ = true;
  return socket_->Send(welcome);
}

void OneSidedConnection::OnWindowOpened(const WriteWindow& window) {
  if (!greeted_ || said_bye_ || !broken_.ok()) return;
  if (boot_ == BootId() || window.peer != boot_) return;
  if (socket_->waiting() >= kMaxWaitingAnswers)
    return;  // the peer takes no frames, so it has to ask
  if (receiver_.Give(id_, window.key, region_) != nullptr) broken_ = SendWindow(window);
}

void OneSidedConnection::AnswerAsk(uint64_t key) {
  // The window was given when it opened, and this request crossed it on the way.
  if (!broken_.ok() || receiver_.holds(id_, key)) return;
  if (const WriteWindow* window = receiver_.Give(id_, key, region_); window != nullptr) {
    broken_ = SendWindow(*window);
    return;
  }
  SidebandFrame refusal;
  refusal.header.type = SidebandType::kWindow;
  refusal.header.key = key;
  refusal.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
  broken_ = socket_->Send(refusal);
}

Status OneSidedConnection::SendWindow(const WriteWindow& window) {
  SidebandFrame frame;
  frame.header.type = SidebandType::kWindow;
  frame.header.key = window.key;
  frame.header.bytes = window.ranges.size();
  size_t sent = 0;
  do {
    const size_t count = std::min<size_t>(kMaxSidebandRecords, window.ranges.size() - sent);
    const auto first = window.ranges.begin() + static_cast<ptrdiff_t>(sent);
    frame.ranges.assign(first, first + static_cast<ptrdiff_t>(count));
    socket_->Queue(frame);
    sent += count;
  } while (sent < window.ranges.size());
  return socket_->Flush();
}

Status OneSidedConnection::CheckLanded(const SidebandFrame& frame) {
  WriteHeader header;
  header.run_count = static_cast<uint32_t>(frame.ranges.size());
  header.op = frame.header.op;
  header.granule = frame.header.granule;
  header.payload_bytes = frame.header.bytes;
  BATON_RETURN_IF_ERROR(CheckHeader(header));
  return CheckRanges(header, frame.ranges);
}

void OneSidedConnection::OnWindowClosed(uint64_t key) {
  if (!receiver_.holds(id_, key)) return;
  SidebandFrame close;
  close.header.type = SidebandType::kClose;
  close.header.key = key;
  if (broken_.ok()) broken_ = socket_->Send(close);
}

void OneSidedConnection::Break(const Status& reason) {
  if (broken_.ok()) broken_ = reason;
  has_more_ = true;
}

void OneSidedConnection::Acknowledge(uint64_t op, const Status& status) {
  SidebandFrame ack;
  ack.header.type = SidebandType::kAck;
  ack.header.op = op;
  ack.header.code = static_cast<uint32_t>(status.code());
  socket_->Queue(ack);
  has_queued_ = true;
}

bool OneSidedConnection::SendAnswers() {
  if (!std::exchange(has_queued_, false)) return false;
  if (broken_.ok()) broken_ = socket_->Flush();
  return true;
}

}  // namespace baton
