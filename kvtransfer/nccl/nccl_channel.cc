#include "kvtransfer/nccl/nccl_channel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kvtransfer/nccl/welcome.h"
#include "kvtransfer/sideband/copy_id.h"
#include "kvtransfer/wire/byte_ranges.h"

namespace baton {

NcclChannel::NcclChannel(std::unique_ptr<FrameSocket> socket, Options options)
    : options_(std::move(options)),
      end_(*this,
           {.socket = std::move(socket),
            .epoll_fd = options_.epoll_fd,
            .source_bytes = options_.source->size(),
            .max_op_bytes = kNcclBufferBytes,
            .connect_timeout = options_.connect_timeout}) {
  end_.Greet(BootId(), options_.peer_region, "");
}

NcclChannel::~NcclChannel() = default;  // StagedPair waits until the source is not read any more

StatusOr<OpId> NcclChannel::PostWrite(const WriteOp& op) {
  BATON_ASSIGN_OR_RETURN(const OpId id, end_.Accept(op));
  queued_.push_back(id.value());
  return id;
}

size_t NcclChannel::Poll(Time now, std::span<WriteEvent> events) {
  end_.Receive(now);
  if (end_.status().ok() && pair_) TakeExchanges(now);
  // Between two gathers, what was gathered is sent: posting a gather takes time, too.
  for (bool gathers = pair_ != nullptr; gathers;) {
    TakeCopies();
    if (end_.status().ok()) SendGathered();
    gathers = end_.status().ok() && GatherNext();
  }
  end_.Flush();
  rate_.OnPoll(now, is_busy());
  wants_poll_ = end_.MovedLately(now) && is_busy();
  if (pair_ && !wants_poll_) pair_->WatchEnds();
  return end_.Finish(events);
}

Status NcclChannel::OnFrame(SidebandFrame frame) {
  return InvalidArgument("a receiver does not send frames of type {}",
                         static_cast<uint16_t>(frame.header.type));
}

Status NcclChannel::OnWelcome(const SidebandFrame& frame) {
  BATON_ASSIGN_OR_RETURN(const NcclWelcome welcome, ParseNcclWelcome(frame.text));
  if (welcome.buffer_bytes < kNcclBufferBytes) {
    return InvalidArgument("nccl: the peer's buffers have {} bytes; this side sends up to {}",
                           welcome.buffer_bytes,
                           kNcclBufferBytes);
  }
  peer_buffers_ = welcome.buffers;
  StagedPair::Options options;
  options.pair_id = welcome.pair_id;
  options.peer = options_.peer;
  options.sends = true;
  options.connect_timeout = options_.connect_timeout;
  options.stall_timeout = options_.stall_timeout;
  options.epoll_fd = options_.epoll_fd;
  BATON_ASSIGN_OR_RETURN(pair_,
                         StagedPair::Create(options_.device, *options_.source, std::move(options)));
  return OkStatus();
}

Status NcclChannel::CheckAck(uint64_t id, const Op* op) {
  if (announced_.erase(id) == 0) {
    return InvalidArgument("write {} was acknowledged, but not announced", id);
  }
  if (op != nullptr) rate_.OnMoved(op->header.payload_bytes);
  return OkStatus();
}

bool NcclChannel::GatherNext() {
  if (queued_.empty()) return false;
  if (Op* const op = end_.Find(queued_.front()); op != nullptr) {
    const StatusOr<bool> started = StartGather(*op);
    if (!started.ok()) end_.Die(started.status(), WriteEvent::Kind::kFailed);
    if (!started.ok() || !*started) return false;
    end_.OnProgress();
  }
  queued_.pop_front();
  return true;
}

StatusOr<bool> NcclChannel::StartGather(Op& op) {
  const uint64_t id = op.header.op;
  Staged staged{id, -1};
  if (op.header.payload_bytes > 0) {
    staged.buffer = pair_->TakeBuffer();
    if (staged.buffer < 0) return false;
    const std::vector<ByteRange> sources = SourceRanges(op.runs);
    BATON_RETURN_IF_ERROR(pair_->Gather(MoveId(id), staged.buffer, sources));
    op.moving = true;
    if (op.header.granule > 0) {
      BATON_RETURN_IF_ERROR(pair_->Checksum(ChecksumId(id), sources, op.header.granule));
      op.summing = true;
    }
  }
  op.kept = true;  // SendGathered needs it, also to drop it
  staged_.push_back(staged);
  return true;
}

void NcclChannel::TakeCopies() {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = pair_->PollCopies(done);
    if (count > 0) end_.OnProgress();
    for (DmaDone& end : std::span(done).first(count)) {
      const uint64_t id = OpOf(end.id);
      Op& op = *end_.Find(id);  // an operation stays until its copies have ended
      const bool is_sum = IsChecksum(end.id);
      (is_sum ? op.summing : op.moving) = false;
      if (is_sum && end.status.ok() && !op.verdict) {
        end_.ReportChecksums(id, std::move(end.checksums));
      }
      if (!end.status.ok()) end_.Die(end.status, WriteEvent::Kind::kFailed);
      end_.EndIfIdle(id);
    }
  } while (count == done.size());
}

void NcclChannel::SendGathered() {
  while (!staged_.empty() && end_.status().ok()) {
    const Staged next = staged_.front();
    Op& op = *end_.Find(next.op);
    const bool taken_back = op.verdict.has_value();
    const bool waits = !taken_back && announced_.size() == peer_buffers_;
    if (op.moving || waits) return;
    staged_.pop_front();
    op.kept = false;
    if (!taken_back) {
      Announce(op, next.buffer);
      continue;
    }
    if (next.buffer >= 0) pair_->FreeBuffer(next.buffer);
    end_.EndIfIdle(next.op);
  }
}

void NcclChannel::Announce(const Op& op, int buffer) {
  SidebandFrame send;
  send.header.type = SidebandType::kSend;
  send.header.key = op.header.window_key;
  send.header.op = op.header.op;
  send.header.tag = op.header.tag;
  send.header.granule = op.header.granule;
  send.header.bytes = op.header.payload_bytes;
  send.ranges = op.destinations;
  announced_.insert(send.header.op);
  end_.Send(send);  // if that fails, `op` is gone
  if (buffer < 0 || !end_.status().ok()) return;
  sending_.push_back(buffer);
  if (const Status posted = pair_->Exchange(buffer, send.header.bytes); !posted.ok()) {
    end_.Die(posted, WriteEvent::Kind::kFailed);
  }
}

void NcclChannel::TakeExchanges(Time now) {
  const StatusOr<size_t> ended = pair_->PollExchanges(now);
  if (!ended.ok()) return end_.Die(ended.status(), WriteEvent::Kind::kFailed);
  for (size_t i = 0; i < *ended; ++i) {
    pair_->FreeBuffer(sending_.front());
    sending_.pop_front();
    end_.OnProgress();
  }
}

void NcclChannel::StopMoving() {
  if (pair_) pair_->Abort();
}

}  // namespace baton
