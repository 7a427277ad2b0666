#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/device/pinned_memory.h"

namespace baton::cuda {

// Memory on the device of each rank of a group that the other ranks read and write over NVLink or
// PCIe, and a word that ends the waits of this rank's kernels for other ranks. One thread, except
// Abort.
class PeerMemory final {
 public:
  // Gives the ranks of `host` access to `bytes` bytes of each other, for the current device.
  // `initialize` writes to this rank's memory before another rank can. Errors: Unavailable when the
  // device of a rank cannot reach the memory of another one; ResourceExhausted; those of `host`.
  // When one rank has an error, all have one.
  static StatusOr<std::unique_ptr<PeerMemory>> Create(
      Collective& host, size_t bytes, const std::function<Status(std::byte*)>& initialize);
  // The other ranks must have ended their last access.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;

  std::byte* own() const { return own_; }
  // The memory of another rank.
  std::byte* of(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  // In host memory: not 0 after Abort.
  const int32_t* aborted() const { return reinterpret_cast<const int32_t*>(aborted_.data()); }
  void Abort() const;

 private:
  // What another rank needs to access this rank's memory.
  struct Address;

  PeerMemory() = default;
  Status Allocate(size_t bytes, const std::function<Status(std::byte*)>& initialize);
  StatusOr<std::byte*> Open(const Address& peer);

  int device_ = 0;
  std::byte* own_ = nullptr;
  std::vector<std::byte*> peers_;     // by rank; null for this rank
  std::vector<std::byte*> imported_;  // those of them that must be closed
  PinnedMemory aborted_;
};

}  // namespace baton::cuda
