#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/base/unique_fd.h"
#include "kernels/dma.h"
#include "kvtransfer/wire/granule_hasher.h"

namespace baton {

// A DmaQueue for host memory. The work is done on the caller's thread in Poll, one post a call, so
// that the caller can do other work in between. Contract and thread: DmaQueue.
class HostDmaQueue final : public DmaQueue {
 public:
  static StatusOr<std::unique_ptr<DmaQueue>> Create();

  int wait_fd() const override { return work_left_.get(); }
  Status Copy(uint64_t id,
              const Buffer& from,
              const Buffer& to,
              std::span<const CopyRun> runs) override;
  Status Checksum(uint64_t id,
                  const Buffer& of,
                  std::span<const ByteRange> ranges,
                  uint64_t granule) override;
  size_t Poll(std::span<DmaDone> done) override;
  void WatchEnds() override;

 private:
  struct Work {
    uint64_t id = 0;
    const Buffer* from = nullptr;
    const Buffer* to = nullptr;  // null: a checksum
    std::vector<CopyRun> runs;   // of a checksum: only the sources
    uint64_t granule = 0;
  };
  explicit HostDmaQueue(UniqueFd work_left) : work_left_(std::move(work_left)) {}
  DmaDone Do(const Work& work);

  const UniqueFd work_left_;  // readable after WatchEnds while work is left
  bool is_signalled_ = false;
  std::deque<Work> work_;
  GranuleHasher hasher_;
};

}  // namespace baton
