#include "kvtransfer/nccl/staged_pair.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "kernels/packed_runs.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

// Of a buffer in the staging memory.
uint64_t OffsetOf(int buffer) {
  return static_cast<uint64_t>(buffer) * kNcclBufferBytes;
}

}  // namespace

StatusOr<std::unique_ptr<StagedPair>> StagedPair::Create(const PairDevice& device,
                                                         const Buffer& memory,
                                                         Options options) {
  BATON_ASSIGN_OR_RETURN(auto queue, device.dma->MakeQueue());
  PairCommunicator::Options pair;
  pair.id = options.pair_id;
  pair.sends = options.sends;
  pair.staging_bytes = kNcclBuffers * kNcclBufferBytes;
  BATON_ASSIGN_OR_RETURN(auto communicator, device.exchange->Make(pair));
  return std::unique_ptr<StagedPair>(new StagedPair(
      memory, *device.aborted, std::move(options), std::move(queue), std::move(communicator)));
}

StagedPair::StagedPair(const Buffer& memory,
                       AbortedPairs& aborted,
                       Options options,
                       std::unique_ptr<DmaQueue> queue,
                       std::unique_ptr<PairCommunicator> communicator)
    : memory_(memory),
      aborted_(aborted),
      options_(std::move(options)),
      taken_(kNcclBuffers),
      communicator_(std::move(communicator)),
      queue_(std::move(queue)) {
  // If watching fails, the periodic Poll calls of the user still move the pair on.
  (void)WatchFd(options_.epoll_fd, queue_->wait_fd());
  (void)WatchFd(options_.epoll_fd, communicator_->wait_fd());
}

StagedPair::~StagedPair() {
  Abort();
  queue_.reset();  // its copies use the staging memory
  aborted_.Add(std::move(communicator_));
}

void StagedPair::Abort() {
  if (std::exchange(is_aborted_, true)) return;
  ::epoll_ctl(options_.epoll_fd, EPOLL_CTL_DEL, communicator_->wait_fd(), nullptr);
  communicator_->Abort();
}

int StagedPair::TakeBuffer() {
  const auto free = std::find(taken_.begin(), taken_.end(), false);
  if (free == taken_.end()) return -1;
  *free = true;
  return static_cast<int>(free - taken_.begin());
}

Status StagedPair::Gather(uint64_t id, int buffer, std::span<const ByteRange> ranges) {
  return queue_->Copy(id, memory_, communicator_->staging(), GatherRuns(ranges, OffsetOf(buffer)));
}

Status StagedPair::Scatter(uint64_t id, int buffer, std::span<const ByteRange> ranges) {
  return queue_->Copy(id, communicator_->staging(), memory_, ScatterRuns(ranges, OffsetOf(buffer)));
}

Status StagedPair::Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) {
  return queue_->Checksum(id, memory_, ranges, granule);
}

Status StagedPair::Exchange(int buffer, uint64_t bytes) {
  BATON_RETURN_IF_ERROR(communicator_->Post(OffsetOf(buffer), bytes));
  ++under_way_;
  return OkStatus();
}

StatusOr<size_t> StagedPair::PollExchanges(Time now) {
  BATON_ASSIGN_OR_RETURN(const size_t ended, communicator_->Poll());
  under_way_ -= ended;
  if (ended > 0) moved_ = now;
  BATON_RETURN_IF_ERROR(CheckProgress(now));
  return ended;
}

Status StagedPair::CheckProgress(Time now) {
  if (connect_until_ == Time{}) connect_until_ = now + options_.connect_timeout;
  if (!communicator_->is_connected()) {
    if (now < connect_until_) return OkStatus();
    return MakeStatus(StatusCode::kUnavailable,
                      "nccl: the communicator with {} has not connected within {:.1f} s",
                      options_.peer,
                      ToSeconds(options_.connect_timeout));
  }
  if (under_way_ == 0) {
    moved_ = Time{};
    return OkStatus();
  }
  if (moved_ == Time{}) moved_ = now;
  if (now < moved_ + options_.stall_timeout) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "nccl: {} {} {} {} have made no progress for {:.1f} s",
                    under_way_,
                    options_.sends ? "sends" : "receives",
                    options_.sends ? "to" : "from",
                    options_.peer,
                    ToSeconds(options_.stall_timeout));
}

void StagedPair::WatchEnds() {
  queue_->WatchEnds();
  if (!is_aborted_) communicator_->WatchEnds();
}

}  // namespace baton
