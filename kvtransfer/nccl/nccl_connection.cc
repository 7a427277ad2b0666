#include "kvtransfer/nccl/nccl_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kvtransfer/nccl/welcome.h"
#include "kvtransfer/sideband/copy_id.h"

namespace baton {

NcclConnection::NcclConnection(std::unique_ptr<FrameSocket> socket,
                               Options options,
                               WindowTable& windows,
                               GrantTable& copies,
                               Time now)
    : socket_(std::move(socket)),
      options_(std::move(options)),
      windows_(windows),
      copies_(copies),
      since_(now) {}

NcclConnection::~NcclConnection() {
  pair_.reset();  // waits for the copies
  // Otherwise the windows stay open: their blocks go to quarantine.
  if (!copies_are_lost_) copies_.OnDrained(options_.id);
}

Status NcclConnection::Step(Time now, size_t quantum) {
  BATON_RETURN_IF_ERROR(socket_->Flush());
  has_answers_ = false;
  // Copies first: they free buffers.
  if (pair_) BATON_RETURN_IF_ERROR(TakeCopies());
  BATON_RETURN_IF_ERROR(ReceiveFrames(quantum));
  if (!pair_) return OkStatus();
  BATON_RETURN_IF_ERROR(TakeExchanges(now));
  has_more_ = (progress_.IsRecent(now) && !landing_.empty()) || has_more_ || has_answers_;
  if (!has_more_) pair_->WatchEnds();
  return OkStatus();
}

Status NcclConnection::ReceiveFrames(size_t quantum) {
  has_more_ = false;
  for (size_t read = 0;; read += kMaxSidebandFrameBytes) {
    if (read > quantum || windows_.is_behind()) {
      has_more_ = true;
      return OkStatus();
    }
    if (socket_->waiting() >= kMaxWaitingAnswers) {
      BATON_RETURN_IF_ERROR(socket_->Flush());
      if (socket_->waiting() >= kMaxWaitingAnswers) return OkStatus();  // until it can be written
    }
    BATON_ASSIGN_OR_RETURN(std::optional<SidebandFrame> frame, socket_->Receive());
    if (!frame) return OkStatus();
    BATON_RETURN_IF_ERROR(OnFrame(*std::move(frame)));
  }
}

Status NcclConnection::OnFrame(SidebandFrame frame) {
  if (frame.header.type == SidebandType::kHello && !pair_) return OnHello(frame);
  if (frame.header.type == SidebandType::kSend && pair_) return OnSend(std::move(frame));
  return InvalidArgument("a frame of type {} is not allowed at this point",
                         static_cast<uint16_t>(frame.header.type));
}

Status NcclConnection::OnHello(const SidebandFrame& frame) {
  if (frame.header.op > ~uint32_t{0}) {
    return InvalidArgument("region id {} exceeds 32 bits", frame.header.op);
  }
  region_ = static_cast<uint32_t>(frame.header.op);
  const WindowTable::Memory* memory = windows_.Find(region_);
  if (memory == nullptr) {
    return InvalidArgument("the peer wants to write region {}, which is unknown", region_);
  }
  NcclWelcome welcome;
  welcome.buffers = kNcclBuffers;
  welcome.buffer_bytes = kNcclBufferBytes;
  BATON_ASSIGN_OR_RETURN(welcome.pair_id, options_.device.exchange->MakeId());
  StagedPair::Options options;
  options.pair_id = welcome.pair_id;
  options.peer = options_.peer;
  options.connect_timeout = options_.connect_timeout;
  options.stall_timeout = options_.stall_timeout;
  options.epoll_fd = options_.epoll_fd;
  BATON_ASSIGN_OR_RETURN(pair_,
                         StagedPair::Create(options_.device, *memory->buffer, std::move(options)));
  SidebandFrame answer;
  answer.header.type = SidebandType::kWelcome;
  answer.text = EncodeNcclWelcome(welcome);
  return socket_->Send(answer);
}

Status NcclConnection::OnSend(SidebandFrame frame) {
  Landing landing;
  landing.header.run_count = static_cast<uint32_t>(frame.ranges.size());
  landing.header.op = frame.header.op;
  landing.header.window_key = frame.header.key;
  landing.header.tag = frame.header.tag;
  landing.header.granule = frame.header.granule;
  landing.header.payload_bytes = frame.header.bytes;
  landing.ranges = std::move(frame.ranges);
  progress_.OnProgress();
  BATON_RETURN_IF_ERROR(CheckHeader(landing.header));
  BATON_RETURN_IF_ERROR(CheckRanges(landing.header, landing.ranges));
  const uint64_t op = landing.header.op;
  const uint64_t bytes = landing.header.payload_bytes;
  if (op <= last_op_ || landing_.size() >= kNcclBuffers || bytes > kNcclBufferBytes) {
    return InvalidArgument(
        "write {} of {} bytes was announced after write {}, while {} are under way; ids ascend, "
        "and "
        "at most {} writes of {} bytes may be under way",
        op,
        bytes,
        last_op_,
        landing_.size(),
        kNcclBuffers,
        kNcclBufferBytes);
  }
  last_op_ = op;
  landing.verdict = windows_.CheckWrite(landing.header.window_key, region_, landing.ranges);
  const auto added = landing_.emplace(op, std::move(landing)).first;
  if (bytes == 0) return Conclude(added, {});
  added->second.buffer = pair_->TakeBuffer();  // there are as many as writes under way
  receiving_.push_back(op);
  return pair_->Exchange(added->second.buffer, bytes);
}

Status NcclConnection::TakeExchanges(Time now) {
  BATON_ASSIGN_OR_RETURN(const size_t ended, pair_->PollExchanges(now));
  for (size_t i = 0; i < ended; ++i) {
    const auto landing = landing_.find(receiving_.front());
    receiving_.pop_front();
    progress_.OnProgress();
    if (landing->second.verdict.ok()) {
      BATON_RETURN_IF_ERROR(StartCopy(landing->second));
    } else {
      BATON_RETURN_IF_ERROR(Conclude(landing, {}));
    }
  }
  return OkStatus();
}

Status NcclConnection::StartCopy(Landing& landing) {
  BATON_RETURN_IF_ERROR(pair_->Scatter(MoveId(landing.header.op), landing.buffer, landing.ranges));
  landing.copying = true;
  copies_.Give(options_.id, landing.header.window_key);
  return OkStatus();
}

bool NcclConnection::IsCopying(uint64_t key) const {
  return std::any_of(landing_.begin(), landing_.end(), [&](const auto& entry) {
    return entry.second.copying && entry.second.header.window_key == key;
  });
}

Status NcclConnection::TakeCopies() {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = pair_->PollCopies(done);
    if (count > 0) progress_.OnProgress();
    for (DmaDone& end : std::span(done).first(count)) {
      copies_are_lost_ = copies_are_lost_ || !end.status.ok();
      BATON_RETURN_IF_ERROR(end.status);
      const auto landing = landing_.find(OpOf(end.id));
      const bool is_sum = IsChecksum(end.id);
      BATON_RETURN_IF_ERROR(is_sum ? Conclude(landing, std::move(end.checksums))
                                   : OnCopied(landing));
    }
  } while (count == done.size());
  return OkStatus();
}

Status NcclConnection::OnCopied(Landings::iterator landing) {
  Landing& landed = landing->second;
  landed.copying = false;
  const uint64_t key = landed.header.window_key;
  if (!IsCopying(key)) copies_.OnDrained(options_.id, key);
  if (landed.header.granule == 0 || !landed.verdict.ok()) return Conclude(landing, {});
  return pair_->Checksum(ChecksumId(landing->first), landed.ranges, landed.header.granule);
}

Status NcclConnection::Conclude(Landings::iterator landing, std::vector<uint64_t> checksums) {
  Landing landed = std::move(landing->second);
  landing_.erase(landing);
  if (landed.buffer >= 0) pair_->FreeBuffer(landed.buffer);
  if (landed.verdict.ok()) {
    Arrival arrival;
    arrival.window_key = landed.header.window_key;
    arrival.region = region_;
    arrival.tag = landed.header.tag;
    arrival.bytes = landed.header.payload_bytes;
    arrival.ranges = std::move(landed.ranges);
    arrival.checksums = std::move(checksums);
    windows_.Report(std::move(arrival));
  }
  SidebandFrame ack;
  ack.header.type = SidebandType::kAck;
  ack.header.op = landed.header.op;
  ack.header.code = static_cast<uint32_t>(landed.verdict.code());
  socket_->Queue(ack);
  has_answers_ = true;
  return OkStatus();
}

void NcclConnection::OnWindowClosed(uint64_t key) {
  for (auto& [op, landing] : landing_) {
    if (landing.header.window_key != key || !landing.verdict.ok()) continue;
    landing.verdict = MakeStatus(StatusCode::kAborted, "the write window was closed");
  }
}

}  // namespace baton
