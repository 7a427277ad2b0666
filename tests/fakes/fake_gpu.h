#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "kernels/dma.h"

namespace baton {

// A GPU as far as KV transports see one: memory that the host cannot dereference (Buffer::data()
// points to pages without any right), exported to other processes of this user, copied by a thread
// for each queue. Tests can hold its work back, or lose it. Thread-safe.
class FakeGpu final : public Device, public Dma {
 public:
  ~FakeGpu() override;

  std::string name() const override { return "fake:0"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  size_t free_bytes() const override { return size_t{1} << 30; }

  StatusOr<std::string> Export(const Buffer& buffer) override;
  StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) override;
  StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) override;
  StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() override;

  // From here on posted work waits, until Release or the end of its queue.
  void Hold();
  void Release();
  // From here on work fails, as when a device is lost.
  void Lose() { is_lost_ = true; }
  // The bytes of a copy are not those of its source.
  void Corrupt(bool corrupts) { corrupts_ = corrupts; }
  // Reaches no exported memory.
  void Isolate() { is_isolated_ = true; }

 private:
  class Queue;

  // Held for each copy: a test may look at memory while a queue writes it, as it may on a device,
  // where no such look is a data race.
  std::mutex memory_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  std::atomic<bool> is_lost_ = false;
  std::atomic<bool> corrupts_ = false;
  std::atomic<bool> is_isolated_ = false;
};

}  // namespace baton
