#include "kernels/cuda/dma/queue_pool.h"

#include <utility>

namespace baton::cuda {

class QueuePool::LentQueue final : public DmaQueue {
 public:
  LentQueue(QueuePool& pool, std::unique_ptr<CudaDmaQueue> queue)
      : pool_(pool), queue_(std::move(queue)) {}
  ~LentQueue() override {
    // A queue whose Reset fails cannot be reused, because its device has failed.
    if (!queue_->Reset().ok()) return;
    const std::lock_guard lock(pool_.mutex_);
    pool_.free_.push_back(std::move(queue_));
  }
  LentQueue(const LentQueue&) = delete;

  int wait_fd() const override { return queue_->wait_fd(); }
  Status Copy(uint64_t id,
              const Buffer& from,
              const Buffer& to,
              std::span<const CopyRun> runs) override {
    return queue_->Copy(id, from, to, runs);
  }
  Status Checksum(uint64_t id,
                  const Buffer& of,
                  std::span<const ByteRange> ranges,
                  uint64_t granule) override {
    return queue_->Checksum(id, of, ranges, granule);
  }
  size_t Poll(std::span<DmaDone> done) override { return queue_->Poll(done); }
  void WatchEnds() override { queue_->WatchEnds(); }

 private:
  QueuePool& pool_;
  std::unique_ptr<CudaDmaQueue> queue_;
};

StatusOr<std::unique_ptr<DmaQueue>> QueuePool::Lend() {
  std::unique_ptr<CudaDmaQueue> queue;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      queue = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (queue == nullptr) {
    BATON_ASSIGN_OR_RETURN(queue, CudaDmaQueue::Create(device_));
  }
  return std::make_unique<LentQueue>(*this, std::move(queue));
}

}  // namespace baton::cuda
