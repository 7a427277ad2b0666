#include "kvtransfer/one_sided/connection.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/one_sided/receiver.h"
#include "kvtransfer/wire/frame.h"

namespace baton {
namespace {

// Queued answers beyond which no further frame is read from the peer.
constexpr size_t kMaxWaiting = 1024;

}  // namespace

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
  for (size_t read = 0; socket_->waiting() < kMaxWaiting; read += kMaxOneSidedFrameBytes) {
    if (read > quantum || receiver_.is_behind()) {
      has_more_ = true;
      break;
    }
    BATON_ASSIGN_OR_RETURN(std::optional<OneSidedFrame> frame, socket_->Receive());
    if (!frame) break;
    BATON_RETURN_IF_ERROR(OnFrame(*std::move(frame)));
  }
  return OkStatus();
}

Status OneSidedConnection::OnFrame(OneSidedFrame frame) {
  if (said_bye_ || greeted_ == (frame.header.type == OneSidedType::kHello)) {
    return InvalidArgument("a frame of type {} is not allowed at this point",
                           static_cast<uint16_t>(frame.header.type));
  }
  switch (frame.header.type) {
    case OneSidedType::kHello:
      return OnHello(frame);
    case OneSidedType::kAsk:
      return OnAsk(frame);
    case OneSidedType::kLanded:
      BATON_RETURN_IF_ERROR(CheckLanded(frame));
      [[fallthrough]];
    case OneSidedType::kTakenBack:
    case OneSidedType::kDrained:
      BATON_RETURN_IF_ERROR(receiver_.OnReport(id_, std::move(frame)));
      return broken_;
    case OneSidedType::kNote:
      receiver_.OnNote(id_, region_, frame);
      return OkStatus();
    case OneSidedType::kBye:
      said_bye_ = true;
      return OkStatus();
    default:
      return InvalidArgument("a sender does not send frames of type {}",
                             static_cast<uint16_t>(frame.header.type));
  }
}

Status OneSidedConnection::OnHello(const OneSidedFrame& frame) {
  if (frame.header.op > ~uint32_t{0})
    return InvalidArgument("region id {} exceeds 32 bits", frame.header.op);
  region_ = static_cast<uint32_t>(frame.header.op);
  OneSidedFrame welcome;
  welcome.header.type = OneSidedType::kWelcome;
  BATON_ASSIGN_OR_RETURN(welcome.text, receiver_.OpenAccess(id_, region_, frame.text));
  greeted_ = true;
  return socket_->Send(welcome);
}

Status OneSidedConnection::OnAsk(const OneSidedFrame& frame) {
  OneSidedFrame answer;
  answer.header.type = OneSidedType::kWindow;
  answer.header.key = frame.header.key;
  const WriteWindow* window = receiver_.Give(id_, frame.header.key, region_);
  if (window == nullptr) {
    answer.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
    return socket_->Send(answer);
  }
  answer.header.bytes = window->ranges.size();
  size_t sent = 0;
  do {
    const size_t count = std::min<size_t>(kMaxOneSidedRecords, window->ranges.size() - sent);
    const auto first = window->ranges.begin() + static_cast<ptrdiff_t>(sent);
    answer.ranges.assign(first, first + static_cast<ptrdiff_t>(count));
    BATON_RETURN_IF_ERROR(socket_->Send(answer));
    sent += count;
  } while (sent < window->ranges.size());
  return OkStatus();
}

Status OneSidedConnection::CheckLanded(const OneSidedFrame& frame) {
  WriteHeader header;
  header.run_count = static_cast<uint32_t>(frame.runs.size());
  header.op = frame.header.op;
  header.granule = frame.header.granule;
  header.payload_bytes = frame.header.bytes;
  BATON_RETURN_IF_ERROR(CheckHeader(header));
  return CheckRuns(header, frame.runs);
}

void OneSidedConnection::OnWindowClosed(uint64_t key) {
  if (!receiver_.holds(id_, key)) return;
  OneSidedFrame close;
  close.header.type = OneSidedType::kClose;
  close.header.key = key;
  if (broken_.ok()) broken_ = socket_->Send(close);
}

void OneSidedConnection::Break(const Status& reason) {
  if (broken_.ok()) broken_ = reason;
  has_more_ = true;
}

void OneSidedConnection::Acknowledge(uint64_t op, const Status& status) {
  OneSidedFrame ack;
  ack.header.type = OneSidedType::kAck;
  ack.header.op = op;
  ack.header.code = static_cast<uint32_t>(status.code());
  if (broken_.ok()) broken_ = socket_->Send(ack);
}

}  // namespace baton
