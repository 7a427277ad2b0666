#include "kvtransfer/verbs/verbs_access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/verbs/write_mark.h"

namespace baton {
namespace {

// Receive requests of one queue pair: the copies that may land before this process looks again. A
// peer that sends more waits (QueuePair: receiver not ready).
constexpr uint32_t kReceives = 512;

}  // namespace

StatusOr<std::unique_ptr<RemoteAccess>> VerbsAccess::Create(
    std::string peer,
    std::span<const std::unique_ptr<Rail>> rails,
    FindKeys find_keys,
    Dma* dma,
    VerbsSocket& socket) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  return std::unique_ptr<RemoteAccess>(
      new VerbsAccess(std::move(peer), rails, std::move(find_keys), dma, socket, std::move(epoll)));
}

StatusOr<std::vector<RailQueues::RailUse>> VerbsAccess::RailsOf(const Handshake& greeting) const {
  std::vector<RailQueues::RailUse> uses;
  for (const RailAddress& rail : greeting.rails) {
    if (rail.index >= rails_.size()) {
      return InvalidArgument(
          "{} wants rail {}; this side has {} rails", peer_, rail.index, rails_.size());
    }
    const auto queue_pairs = static_cast<uint32_t>(rail.queue_pairs.size());
    uses.push_back({rail.index, rails_[rail.index].get(), queue_pairs});
  }
  return uses;
}

StatusOr<std::string> VerbsAccess::Open(const Buffer& memory, std::string_view greeting) {
  BATON_ASSIGN_OR_RETURN(const Handshake theirs, ParseHandshake(greeting));
  BATON_ASSIGN_OR_RETURN(const std::vector<RailQueues::RailUse> uses, RailsOf(theirs));
  const std::vector<uint32_t> all_keys = find_keys_(memory);
  std::vector<uint32_t> keys;
  for (const RailQueues::RailUse& use : uses) {
    if (use.index >= all_keys.size()) return InvalidArgument("the memory is not registered");
    keys.push_back(all_keys[use.index]);
  }
  BATON_ASSIGN_OR_RETURN(queues_,
                         RailQueues::Create(uses, {.receives = kReceives, .is_writable = true}));
  BATON_RETURN_IF_ERROR(WatchFd(epoll_.get(), queues_->wait_fd()));
  BATON_RETURN_IF_ERROR(queues_->Connect(theirs.rails, /*sends=*/false));
  for (size_t i = 0; i < queues_->size(); ++i) {
    BATON_RETURN_IF_ERROR(queues_->queue_pair(i).PostReceives(
        std::min(kReceives, queues_->rail(queues_->rail_of(i)).max_requests())));
  }
  landed_.resize(queues_->size());
  Handshake ours;
  BATON_ASSIGN_OR_RETURN(ours.messages, socket_.OpenMessages(*uses.front().rail));
  BATON_RETURN_IF_ERROR(
      socket_.ConnectMessages(theirs.rails.front().port, theirs.messages, PeerSide::kListener));
  ours.address = reinterpret_cast<uintptr_t>(memory.data());
  ours.bytes = memory.size();
  ours.rails = queues_->Addresses(keys);
  return EncodeHandshake(ours);
}

void VerbsAccess::TakeLanded() {
  std::vector<uint32_t> consumed(landed_.size());
  // A completion with an error, or a queue that is broken: the peer finds out by its own
  // completions, and its connection ends.
  (void)queues_->Poll([&](size_t index, const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS) return;
    ++consumed[index];
    needs_flush_ = dma_ != nullptr;
    if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return;
    const uint32_t mark = ntohl(completion.imm_data);
    if (QueuePairOf(mark) == index) landed_[index] = NumberOf(mark);
  });
  for (size_t i = 0; i < consumed.size(); ++i) {
    (void)queues_->queue_pair(i).PostReceives(consumed[i]);
  }
}

bool VerbsAccess::IsVisible(uint32_t mark) {
  const uint32_t index = QueuePairOf(mark);
  if (index >= landed_.size() || !IsReached(landed_[index], NumberOf(mark))) return false;
  // The RDMA device may report bytes that the GPU does not see yet. A flush fails only with the
  // GPU, and then nothing counts any more.
  if (needs_flush_) needs_flush_ = !dma_->FlushPeerWrites().ok();
  return !needs_flush_;
}

bool VerbsAccess::HasLanded(uint32_t mark) {
  if (!queues_ || is_revoked_) return false;
  queues_->TakeNotifications();
  TakeLanded();
  if (IsVisible(mark)) return true;
  // What has landed before gives no notification.
  if (queues_->Arm()) TakeLanded();
  return IsVisible(mark);
}

bool VerbsAccess::Revoke() {
  is_revoked_ = true;
  return !queues_ || queues_->Destroy();
}

}  // namespace baton
