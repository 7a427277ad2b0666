#include "kvtransfer/verbs/message_queue.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/clock.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they lie");

// One message out of this many has a completion, so that slots become free in time.
constexpr uint64_t kSignalInterval = MessageQueue::kSlots / 4;
// This many credits do not wait for a message that carries them.
constexpr uint32_t kMaxWaitingCredits = MessageQueue::kSlots / 2;

}  // namespace

StatusOr<std::unique_ptr<MessageQueue>> MessageQueue::Create(Rail& rail) {
  std::unique_ptr<MessageQueue> queue(new MessageQueue(rail));
  BATON_RETURN_IF_ERROR(queue->Open());
  return queue;
}

Status MessageQueue::Open() {
  BATON_ASSIGN_OR_RETURN(region_, rail_.RegisterPrivate(memory_));
  BATON_ASSIGN_OR_RETURN(completions_, CompletionQueue::Create(rail_, 2 * kSlots));
  BATON_ASSIGN_OR_RETURN(
      queue_pair_, QueuePair::Create(rail_, *completions_, {.sends = kSlots, .receives = kSlots}));
  for (uint32_t slot = 0; slot < kSlots; ++slot) BATON_RETURN_IF_ERROR(PostReceive(slot));
  return OkStatus();
}

Status MessageQueue::Connect(const PortAddress& port, const QueuePairAddress& peer, PeerSide side) {
  BATON_RETURN_IF_ERROR(queue_pair_->Connect(port, peer, /*sends=*/true));
  if (side == PeerSide::kListener) return OkStatus();
  may_send_ = true;
  return Send(0);
}

ibv_sge MessageQueue::SourceOf(uint32_t slot, size_t bytes) {
  ibv_sge source{};
  source.addr = reinterpret_cast<uintptr_t>(Slot(slot).data());
  source.length = static_cast<uint32_t>(bytes);
  source.lkey = region_->lkey;
  return source;
}

Status MessageQueue::PostReceive(uint32_t slot) {
  ibv_sge memory = SourceOf(slot, kSlotBytes);
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &memory;
  request.num_sge = 1;
  return queue_pair_->PostReceives(&request);
}

std::span<std::byte> MessageQueue::NextPayload() {
  if (!may_send_ || credits_ < 2 || !has_send_slot()) return {};
  return Slot(kSlots + static_cast<uint32_t>(sent_ % kSlots)).subspan(sizeof(Header));
}

Status MessageQueue::Send(size_t bytes) {
  const uint32_t slot = kSlots + static_cast<uint32_t>(sent_ % kSlots);
  const Header header{returned_};
  std::memcpy(Slot(slot).data(), &header, sizeof(header));
  ibv_sge source = SourceOf(slot, sizeof(header) + bytes);
  ibv_send_wr request{};
  request.wr_id = ++sent_;
  request.opcode = IBV_WR_SEND;
  request.sg_list = &source;
  request.num_sge = 1;
  if (sent_ % kSignalInterval == 0) request.send_flags = IBV_SEND_SIGNALED;
  --credits_;
  returned_ = 0;
  return queue_pair_->PostSends(&request);
}

Status MessageQueue::Receive(std::string& stream) {
  std::array<ibv_wc, 2 * size_t{kSlots}> completions;
  BATON_ASSIGN_OR_RETURN(const size_t count, completions_->Poll(completions));
  for (const ibv_wc& completion : std::span(completions).first(count)) {
    if (completion.status != IBV_WC_SUCCESS) {
      rail_.MarkFailed(SteadyClock().Now());
      return MakeStatus(StatusCode::kUnavailable,
                        "an RDMA message failed on {}: {}",
                        rail_.ToString(),
                        rail_.verbs().wc_status_str(completion.status));
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) {
      completed_ = completion.wr_id;
      continue;
    }
    BATON_RETURN_IF_ERROR(OnMessage(completion, stream));
  }
  return OkStatus();
}

Status MessageQueue::OnMessage(const ibv_wc& completion, std::string& stream) {
  const auto slot = static_cast<uint32_t>(completion.wr_id);
  Header header;
  if (completion.byte_len < sizeof(header) || completion.byte_len > kSlotBytes) {
    return InvalidArgument("the peer sent a message of {} bytes; a message has {} to {}",
                           completion.byte_len,
                           sizeof(header),
                           kSlotBytes);
  }
  std::memcpy(&header, Slot(slot).data(), sizeof(header));
  if (header.credits > kSlots - credits_) {
    return InvalidArgument("the peer gave {} credits back; {} of {} were used",
                           header.credits,
                           kSlots - credits_,
                           kSlots);
  }
  may_send_ = true;
  credits_ += header.credits;
  stream.append(reinterpret_cast<const char*>(Slot(slot).data()) + sizeof(header),
                completion.byte_len - sizeof(header));
  // A message that only gives credits back has no payload that must be used first. Its own credit
  // therefore returns also while this end reads nothing, and two ends never wait for each other.
  ++(completion.byte_len == sizeof(header) ? returned_ : used_);
  return PostReceive(slot);
}

Status MessageQueue::ReturnCredits() {
  returned_ += std::exchange(used_, 0);
  if (returned_ < kMaxWaitingCredits || credits_ == 0 || !has_send_slot()) return OkStatus();
  return Send(0);
}

}  // namespace baton
