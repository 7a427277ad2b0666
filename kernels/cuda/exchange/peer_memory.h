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

// Memory on each rank's device that the other ranks of the group read and write over NVLink or
// PCIe. Also has an abort flag, which ends the waits of this rank's kernels for other ranks. One
// thread, except Abort.
class PeerMemory final {
 public:
  // Allocates `bytes` bytes on the current device of each rank of `host` and gives the other ranks
  // access to them. `initialize` writes to this rank's memory before any other rank can access it.
  // Errors: Unavailable if a rank cannot access the memory of another one; ResourceExhausted; those
  // of `host`. If one rank gets an error, all ranks get one.
  static StatusOr<std::unique_ptr<PeerMemory>> Create(
      Collective& host, size_t bytes, const std::function<Status(std::byte*)>& initialize);
  // The other ranks must have ended their last access to this rank's memory.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;

  std::byte* own() const { return own_; }
  // The memory of another rank, at its address in this process.
  std::byte* peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  // The abort flag, in host memory: 0 before Abort, then 1.
  const int32_t* aborted() const { return reinterpret_cast<const int32_t*>(aborted_.data()); }
  void Abort() const;

 private:
  // Tells another rank how to access this rank's memory.
  struct Address;

  PeerMemory() = default;
  Status Allocate(size_t bytes, const std::function<Status(std::byte*)>& initialize);
  StatusOr<std::byte*> Open(const Address& peer);

  int device_ = 0;
  std::byte* own_ = nullptr;
  std::vector<std::byte*> peers_;     // by rank; null for this rank
  std::vector<std::byte*> imported_;  // the peers' memory that was opened from an IPC handle
  PinnedMemory aborted_;
};

}  // namespace baton::cuda
