#include "kvtransfer/verbs/verbs_copier.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

// Send requests of one queue pair: enough for 32 MiB of the largest writes, or for the runs of a
// few blocks that are scattered over the layers.
constexpr uint32_t kSends = 256;

}  // namespace

StatusOr<std::unique_ptr<Copier>> VerbsCopier::Create(std::span<const RailQueues::RailUse> rails,
                                                      Source source,
                                                      std::unique_ptr<DmaQueue> checksums,
                                                      VerbsSocket& socket) {
  BATON_ASSIGN_OR_RETURN(const QueuePairAddress messages, socket.OpenMessages(*rails.front().rail));
  BATON_ASSIGN_OR_RETURN(auto queues, RailQueues::Create(rails, {.sends = kSends}));
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd ended, MakeEventFd());
  for (const int fd : {ended.get(), queues->wait_fd(), checksums->wait_fd()}) {
    BATON_RETURN_IF_ERROR(WatchFd(epoll.get(), fd));
  }
  return std::unique_ptr<Copier>(new VerbsCopier(std::move(source),
                                                 socket,
                                                 messages,
                                                 std::move(queues),
                                                 std::move(checksums),
                                                 std::move(epoll),
                                                 std::move(ended)));
}

VerbsCopier::VerbsCopier(Source source,
                         VerbsSocket& socket,
                         QueuePairAddress messages,
                         std::unique_ptr<RailQueues> queues,
                         std::unique_ptr<DmaQueue> checksums,
                         UniqueFd epoll,
                         UniqueFd ended)
    : source_(std::move(source)),
      socket_(socket),
      messages_(messages),
      epoll_(std::move(epoll)),
      ended_(std::move(ended)),
      queues_(std::move(queues)),
      checksums_(std::move(checksums)) {
  for (size_t i = 0; i < queues_->size(); ++i) {
    const size_t rail = queues_->rail_of(i);
    const uint32_t depth = std::min(kSends, queues_->rail(rail).max_requests());
    writes_.emplace_back(static_cast<uint32_t>(i), depth, queues_->rail(rail).max_sources());
    WriteQueue::Memories memories;
    memories.source = source_.buffer->data();
    memories.local_key = source_.local_keys[rail];
    memories_.push_back(memories);
  }
}

VerbsCopier::~VerbsCopier() {
  // The source must not be read any more. A device that refuses keeps it for ever.
  (void)queues_->Destroy();
}

std::string VerbsCopier::Greeting() const {
  Handshake greeting;
  greeting.messages = messages_;
  greeting.rails = queues_->Addresses({});
  return EncodeHandshake(greeting);
}

Status VerbsCopier::Connect(std::string_view access) {
  BATON_ASSIGN_OR_RETURN(const Handshake peer, ParseHandshake(access));
  BATON_RETURN_IF_ERROR(queues_->Connect(peer.rails, /*sends=*/true));
  BATON_RETURN_IF_ERROR(
      socket_.ConnectMessages(peer.rails.front().port, peer.messages, PeerSide::kDialler));
  for (size_t i = 0; i < memories_.size(); ++i) {
    memories_[i].peer_address = peer.address;
    memories_[i].peer_key = peer.rails[queues_->rail_of(i)].rkey;
  }
  peer_bytes_ = peer.bytes;
  return OkStatus();
}

StatusOr<uint32_t> VerbsCopier::Copy(uint64_t id, std::span<const WriteRun> runs) {
  BATON_RETURN_IF_ERROR(broken_);
  const auto least = std::ranges::min_element(writes_, {}, &WriteQueue::bytes);
  const auto index = static_cast<size_t>(least - writes_.begin());
  const uint32_t mark = least->Push(id, runs);
  const Status posted = least->Post(queues_->queue_pair(index), memories_[index]);
  if (!posted.ok()) Break(posted);
  return mark;
}

Status VerbsCopier::Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) {
  return checksums_->Checksum(id, *source_.buffer, ranges, granule);
}

void VerbsCopier::Fence() {
  Break(MakeStatus(StatusCode::kAborted, "the channel was fenced"));
}

void VerbsCopier::Break(const Status& reason) {
  if (broken_.ok()) broken_ = reason;
  BreakOff();
}

void VerbsCopier::BreakOff() {
  if (!queues_->Destroy()) return;  // tried again in the next Poll
  std::vector<uint64_t> ids;
  for (WriteQueue& writes : writes_) writes.TakeAll(ids);
  for (const uint64_t id : ids) done_.push_back({id, broken_, {}});
}

void VerbsCopier::TakeCompletions() {
  std::vector<uint64_t> ended;
  Status problem;
  const auto take = [&](size_t index, const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS) {
      return writes_[index].OnCompletion(completion.wr_id, ended);
    }
    if (!problem.ok()) return;
    Rail& rail = queues_->rail(queues_->rail_of(index));
    rail.MarkFailed(SteadyClock().Now());
    problem = MakeStatus(StatusCode::kUnavailable,
                         "an RDMA WRITE failed on {}: {}",
                         rail.ToString(),
                         rail.verbs().wc_status_str(completion.status));
  };
  const Status polled = queues_->Poll(take);
  for (const uint64_t id : ended) done_.push_back({id, OkStatus(), {}});
  if (problem.ok()) problem = polled;
  for (size_t i = 0; i < writes_.size() && problem.ok(); ++i) {
    problem = writes_[i].Post(queues_->queue_pair(i), memories_[i]);
  }
  if (!problem.ok()) Break(problem);
}

size_t VerbsCopier::Poll(std::span<DmaDone> done) {
  if (broken_.ok()) {
    queues_->TakeNotifications();
    TakeCompletions();
  } else {
    BreakOff();
  }
  size_t count = 0;
  for (; count < done.size() && !done_.empty(); done_.pop_front()) {
    done[count++] = std::move(done_.front());
  }
  Signal();
  return count + checksums_->Poll(done.subspan(count));
}

void VerbsCopier::Signal() {
  if (done_.empty() == !is_signalled_) return;
  is_signalled_ = !is_signalled_;
  uint64_t value = 1;
  const ssize_t moved = is_signalled_ ? ::write(ended_.get(), &value, sizeof(value))
                                      : ::read(ended_.get(), &value, sizeof(value));
  BATON_CHECK(moved == sizeof(value), "an eventfd does not count");
}

void VerbsCopier::WatchEnds() {
  if (broken_.ok()) {
    // What has completed before gives no notification.
    if (queues_->Arm()) TakeCompletions();
  }
  Signal();
  checksums_->WatchEnds();
}

}  // namespace baton
