#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/dma.h"

namespace baton {

// Staging buffers: pinned host memory between a GPU's memory and a socket. Each buffer holds the
// payload of one write, in payload order. Owned by a channel or a connection; its thread only. The
// destructor waits for the copies under way.
class StagingBuffers final {
 public:
  static constexpr size_t kBuffers = 4;
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  // `memory` is the GPU's, and must outlive this object. `epoll_fd` reports when a copy has ended.
  static StatusOr<std::unique_ptr<StagingBuffers>> Create(Dma& dma,
                                                          const Buffer& memory,
                                                          int epoll_fd);

  // Takes a free buffer and returns its number; -1: no buffer is free. Errors: ResourceExhausted.
  StatusOr<int> Take();
  void Free(int buffer);
  std::byte* data(int buffer) const { return buffers_[static_cast<size_t>(buffer)].memory->data(); }

  // Start a copy of ranges of the GPU's memory into the buffer, one after the other, or of the
  // buffer into the ranges.
  Status CopyOut(int buffer, std::span<const ByteRange> ranges);
  Status CopyIn(int buffer, std::span<const ByteRange> ranges);
  // Handles the copies that have ended. An error: the device is lost.
  Status Poll();
  bool is_busy(int buffer) const { return buffers_[static_cast<size_t>(buffer)].copies > 0; }
  // Waits until the buffer is not busy: a fraction of a millisecond, or up to 5 s if the device is
  // lost.
  void Wait(int buffer);

 private:
  struct StagingBuffer {
    std::unique_ptr<Buffer> memory;  // null until first used
    bool taken = false;
    int copies = 0;
  };

  StagingBuffers(Dma& dma, const Buffer& memory, std::unique_ptr<DmaQueue> queue)
      : dma_(dma), memory_(memory), queue_(std::move(queue)) {}
  Status Start(int buffer, const Buffer& from, const Buffer& to, std::span<const CopyRun> runs);

  Dma& dma_;
  const Buffer& memory_;
  std::array<StagingBuffer, kBuffers> buffers_;
  Status lost_;
  std::unique_ptr<DmaQueue> queue_;  // destroyed before the buffers
};

}  // namespace baton
