#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/dma.h"
#include "kvtransfer/one_sided/copier.h"

namespace baton {

// Copies from a GPU's memory into GPU memory that another process of this host exported, with copy
// engines. Contract, owner and thread: Copier.
class DmaCopier final : public Copier {
 public:
  // `dma` and `source` must outlive the copier. `queue` is a queue of `dma`.
  DmaCopier(Dma& dma, std::unique_ptr<DmaQueue> queue, const Buffer& source)
      : dma_(dma), source_(source), queue_(std::move(queue)) {}

  std::string Greeting() const override { return {}; }
  // `access` is an export of the peer's Dma.
  Status Connect(std::string_view access) override;
  bool marks_copies() const override { return false; }
  uint64_t peer_bytes() const override { return peer_memory_ ? peer_memory_->size() : 0; }
  StatusOr<uint32_t> Copy(uint64_t id, std::span<const WriteRun> runs) override;
  Status Checksum(uint64_t id, std::span<const ByteRange> ranges, uint64_t granule) override;
  // Does nothing: a copy engine cannot be stopped.
  void Fence() override {}
  size_t Poll(std::span<DmaDone> done) override { return queue_->Poll(done); }
  int wait_fd() const override { return queue_->wait_fd(); }
  void WatchEnds() override { queue_->WatchEnds(); }

 private:
  Dma& dma_;
  const Buffer& source_;
  std::unique_ptr<Buffer> peer_memory_;  // set by Connect
  std::unique_ptr<DmaQueue> queue_;      // after peer_memory_: its destructor waits for the copies
};

}  // namespace baton
