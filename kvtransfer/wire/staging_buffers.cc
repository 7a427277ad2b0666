#include "kvtransfer/wire/staging_buffers.h"

#include <poll.h>

#include <algorithm>

#include "common/base/clock.h"
#include "kvtransfer/epoll.h"

namespace baton {
namespace {

constexpr Duration kLongestCopy = std::chrono::seconds(5);
constexpr int kPollMs = 10;

// `runs` with the offsets on one side, the buffer's, replaced: there the runs follow each other
// without gaps.
std::vector<CopyRun> Contiguous(std::span<const CopyRun> runs, uint64_t CopyRun::*side) {
  std::vector<CopyRun> copies(runs.begin(), runs.end());
  uint64_t at = 0;
  for (CopyRun& run : copies) {
    run.*side = at;
    at += run.bytes;
  }
  return copies;
}

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

Status StagingBuffers::CopyOut(int buffer, std::span<const CopyRun> runs) {
  return Start(buffer,
               memory_,
               *buffers_[static_cast<size_t>(buffer)].memory,
               Contiguous(runs, &CopyRun::destination));
}

Status StagingBuffers::CopyIn(int buffer, std::span<const CopyRun> runs) {
  return Start(buffer,
               *buffers_[static_cast<size_t>(buffer)].memory,
               memory_,
               Contiguous(runs, &CopyRun::source));
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
