#include "kvtransfer/wire/staging_buffers.h"

#include <poll.h>

#include <algorithm>

#include "common/base/clock.h"
#include "kernels/packed_runs.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

constexpr Duration kLongestCopy = std::chrono::seconds(5);
constexpr int kPollMs = 10;

}  // namespace

StatusOr<std::unique_ptr<StagingBuffers>> StagingBuffers::Create(Dma& dma,
                                                                 const Buffer& memory,
                                                                 int epoll_fd) {
  BATON_ASSIGN_OR_RETURN(auto queue, dma.MakeQueue());
  BATON_RETURN_IF_ERROR(WatchFd(epoll_fd, queue->wait_fd()));
  return std::unique_ptr<StagingBuffers>(new StagingBuffers(dma, memory, std::move(queue)));
}

StatusOr<int> StagingBuffers::Take() {
  const auto free = std::find_if(
      buffers_.begin(), buffers_.end(), [](const StagingBuffer& buffer) { return !buffer.taken; });
  if (free == buffers_.end()) return -1;
  if (free->memory == nullptr) {
    BATON_ASSIGN_OR_RETURN(free->memory, dma_.AllocateStaging(kBufferBytes));
  }
  free->taken = true;
  return static_cast<int>(free - buffers_.begin());
}

void StagingBuffers::Free(int buffer) {
  buffers_[static_cast<size_t>(buffer)].taken = false;
}

Status StagingBuffers::Start(int buffer,
                             const Buffer& from,
                             const Buffer& to,
                             std::span<const CopyRun> runs) {
  BATON_RETURN_IF_ERROR(lost_);
  BATON_RETURN_IF_ERROR(queue_->Copy(static_cast<uint64_t>(buffer), from, to, runs));
  queue_->WatchEnds();
  ++buffers_[static_cast<size_t>(buffer)].copies;
  return OkStatus();
}

Status StagingBuffers::CopyOut(int buffer, std::span<const ByteRange> ranges) {
  const Buffer& to = *buffers_[static_cast<size_t>(buffer)].memory;
  return Start(buffer, memory_, to, GatherRuns(ranges, 0));
}

Status StagingBuffers::CopyIn(int buffer, std::span<const ByteRange> ranges) {
  const Buffer& from = *buffers_[static_cast<size_t>(buffer)].memory;
  return Start(buffer, from, memory_, ScatterRuns(ranges, 0));
}

Status StagingBuffers::Poll() {
  std::array<DmaDone, kBuffers> done;
  const size_t count = queue_->Poll(done);
  for (const DmaDone& end : std::span(done).first(count)) {
    --buffers_[end.id].copies;
    if (lost_.ok()) lost_ = end.status;
  }
  queue_->WatchEnds();
  return lost_;
}

void StagingBuffers::Wait(int buffer) {
  const SteadyClock clock;
  const Time limit = clock.Now() + kLongestCopy;
  while (is_busy(buffer) && clock.Now() < limit) {
    pollfd ready{queue_->wait_fd(), POLLIN, 0};
    (void)::poll(&ready, 1, kPollMs);
    (void)Poll();
  }
}

}  // namespace baton
