#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/dma.h"
#include "tests/fakes/fake_pairs.h"

namespace baton {

// A GPU as KV transports use one. The host cannot dereference its memory: Buffer::data() points to
// pages without access rights. The memory can be exported to other processes of this user, and each
// queue copies on its own thread. Tests can hold its work back or make the device fail.
// Thread-safe.
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

  StatusOr<std::string> PciAddress() const override { return "0000:3b:00.0"; }
  StatusOr<DmaBuf> ExportDmaBuf(const Buffer& buffer) override;
  Status FlushPeerWrites() override;
  StatusOr<PairExchange*> Pairs() override;

  // From now on posted work waits until Release or until its queue is destroyed.
  void Hold();
  void Release();
  // The number of posted copies and checksums that have not ended.
  int waiting() const { return waiting_; }
  // The number of posted copies and checksums that have ended.
  int ended() const { return ended_; }
  // From now on all work fails, as on a lost device.
  void Lose() { is_lost_ = true; }
  // With true, every later copy writes one wrong byte.
  void Corrupt(bool corrupts) { corrupts_ = corrupts; }
  // From now on Import fails, as without a link to the peer's GPU.
  void Isolate() { is_isolated_ = true; }
  // From now on buffers have no dma-buf, as with an old driver.
  void RemoveDmaBufs() { has_dma_bufs_ = false; }
  // From now on FlushPeerWrites returns this status.
  void SetFlush(Status status) { flush_ = std::move(status); }
  // The number of calls of FlushPeerWrites.
  int flushes() const { return flushes_; }
  // From now on Pairs fails, as without NCCL.
  void RemovePairs() { has_pairs_ = false; }
  FakePairs& pairs() { return pairs_; }

 private:
  class Queue;

  // Held during each copy. A test may read memory while a queue writes to it: on a real device that
  // is no data race of host threads.
  std::mutex memory_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_held_ = false;
  std::atomic<bool> is_lost_ = false;
  std::atomic<bool> corrupts_ = false;
  std::atomic<bool> is_isolated_ = false;
  std::atomic<bool> has_dma_bufs_ = true;
  std::atomic<int> flushes_ = 0;
  std::atomic<int> waiting_ = 0;
  std::atomic<int> ended_ = 0;
  std::atomic<bool> has_pairs_ = true;
  Status flush_;
  FakePairs pairs_{*this};
};

}  // namespace baton
