#include "kvtransfer/cuda_ipc/ipc_connection.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/cuda_ipc/ipc_receiver.h"
#include "kvtransfer/wire/frame.h"

namespace baton {
namespace {

// Queued answers beyond which no further frame is read from the peer.
constexpr size_t kMaxWaiting = 1024;

}  // namespace

IpcConnection::IpcConnection(
    UniqueFd socket, std::string peer, uint64_t id, IpcReceiver& receiver, Time now)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      id_(id),
      receiver_(receiver),
      since_(now) {
  receiver_.OnConnected(id_, this);
}

IpcConnection::~IpcConnection() {
  receiver_.OnGone(id_, said_bye_);
}

Status IpcConnection::Step(Time, size_t quantum) {
  BATON_RETURN_IF_ERROR(broken_);
  BATON_RETURN_IF_ERROR(socket_.Flush());
  has_more_ = false;
  for (size_t read = 0; socket_.waiting() < kMaxWaiting; read += kMaxIpcFrameBytes) {
    if (read > quantum || receiver_.is_behind()) {
      has_more_ = true;
      break;
    }
    BATON_ASSIGN_OR_RETURN(const std::optional<IpcFrame> frame, socket_.Receive());
    if (!frame) break;
    BATON_RETURN_IF_ERROR(OnFrame(*frame));
  }
  return OkStatus();
}

Status IpcConnection::OnFrame(const IpcFrame& frame) {
  if (said_bye_ || greeted_ == (frame.header.type == IpcType::kHello)) {
    return InvalidArgument("a frame of type {} is not allowed at this point",
                           static_cast<uint16_t>(frame.header.type));
  }
  switch (frame.header.type) {
    case IpcType::kHello:
      return OnHello(frame);
    case IpcType::kAsk:
      return OnAsk(frame);
    case IpcType::kLanded:
      return OnLanded(frame);
    case IpcType::kDrained:
      receiver_.OnDrained(id_, frame.header.key);
      return OkStatus();
    case IpcType::kNote:
      receiver_.OnNote(id_, region_, frame);
      return OkStatus();
    case IpcType::kBye:
      said_bye_ = true;
      return OkStatus();
    default:
      return InvalidArgument("a sender does not send frames of type {}",
                             static_cast<uint16_t>(frame.header.type));
  }
}

Status IpcConnection::OnHello(const IpcFrame& frame) {
  if (frame.header.op > ~uint32_t{0})
    return InvalidArgument("region id {} exceeds 32 bits", frame.header.op);
  region_ = static_cast<uint32_t>(frame.header.op);
  IpcFrame welcome;
  welcome.header.type = IpcType::kWelcome;
  BATON_ASSIGN_OR_RETURN(welcome.text, receiver_.ExportOf(region_));
  greeted_ = true;
  return socket_.Send(welcome);
}

Status IpcConnection::OnAsk(const IpcFrame& frame) {
  IpcFrame answer;
  answer.header.type = IpcType::kWindow;
  answer.header.key = frame.header.key;
  const WriteWindow* window = receiver_.Give(id_, frame.header.key, region_);
  if (window == nullptr) {
    answer.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
    return socket_.Send(answer);
  }
  answer.header.bytes = window->ranges.size();
  size_t sent = 0;
  do {
    const size_t count = std::min<size_t>(kMaxIpcRecords, window->ranges.size() - sent);
    const auto first = window->ranges.begin() + static_cast<ptrdiff_t>(sent);
    answer.ranges.assign(first, first + static_cast<ptrdiff_t>(count));
    BATON_RETURN_IF_ERROR(socket_.Send(answer));
    sent += count;
  } while (sent < window->ranges.size());
  return OkStatus();
}

Status IpcConnection::OnLanded(const IpcFrame& frame) {
  WriteHeader header;
  header.run_count = static_cast<uint32_t>(frame.runs.size());
  header.op = frame.header.op;
  header.granule = frame.header.granule;
  header.payload_bytes = frame.header.bytes;
  BATON_RETURN_IF_ERROR(CheckHeader(header));
  BATON_RETURN_IF_ERROR(CheckRuns(header, frame.runs));
  const Status started = receiver_.OnLanded(id_, region_, frame);
  if (!started.ok()) Acknowledge(header.op, started);
  return broken_;
}

void IpcConnection::OnWindowClosed(uint64_t key) {
  if (!receiver_.holds(id_, key)) return;
  IpcFrame close;
  close.header.type = IpcType::kClose;
  close.header.key = key;
  if (broken_.ok()) broken_ = socket_.Send(close);
}

void IpcConnection::Acknowledge(uint64_t op, const Status& status) {
  IpcFrame ack;
  ack.header.type = IpcType::kAck;
  ack.header.op = op;
  ack.header.code = static_cast<uint32_t>(status.code());
  if (broken_.ok()) broken_ = socket_.Send(ack);
}

}  // namespace baton
