#include "kvtransfer/wire/host_dma_queue.h"

#include <cstring>
#include <utility>

#include "kvtransfer/loop/epoll.h"

namespace baton {

StatusOr<std::unique_ptr<DmaQueue>> HostDmaQueue::Create() {
  BATON_ASSIGN_OR_RETURN(UniqueFd work_left, MakeEventFd());
  return std::unique_ptr<DmaQueue>(new HostDmaQueue(std::move(work_left)));
}

Status HostDmaQueue::Copy(uint64_t id,
                          const Buffer& from,
                          const Buffer& to,
                          std::span<const CopyRun> runs) {
  work_.push_back({id, &from, &to, {runs.begin(), runs.end()}, 0});
  return OkStatus();
}

Status HostDmaQueue::Checksum(uint64_t id,
                              const Buffer& of,
                              std::span<const ByteRange> ranges,
                              uint64_t granule) {
  Work work{id, &of, nullptr, {}, granule};
  for (const ByteRange& range : ranges) work.runs.push_back({range.offset, 0, range.bytes});
  work_.push_back(std::move(work));
  return OkStatus();
}

DmaDone HostDmaQueue::Do(const Work& work) {
  DmaDone done{work.id, OkStatus(), {}};
  if (work.to == nullptr) hasher_.Start(work.granule);
  for (const CopyRun& run : work.runs) {
    const std::byte* source = work.from->data() + run.source;
    if (work.to == nullptr) {
      hasher_.Update({source, run.bytes});
    } else {
      std::memcpy(work.to->data() + run.destination, source, run.bytes);
    }
  }
  if (work.to == nullptr) done.checksums = hasher_.Take();
  return done;
}

size_t HostDmaQueue::Poll(std::span<DmaDone> done) {
  if (work_.empty() || done.empty()) return 0;
  done[0] = Do(work_.front());
  work_.pop_front();
  if (work_.empty() && std::exchange(is_signalled_, false)) {
    uint64_t value = 0;
    (void)!::read(work_left_.get(), &value, sizeof(value));
  }
  return 1;
}

void HostDmaQueue::WatchEnds() {
  if (work_.empty() || std::exchange(is_signalled_, true)) return;
  const uint64_t value = 1;
  (void)!::write(work_left_.get(), &value, sizeof(value));
}

}  // namespace baton
