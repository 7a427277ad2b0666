#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/sums/peer_parts.h"
#include "kernels/tensor.h"

// Kernels that move elements through slots (PeerSlots). The address, the row length and the row
// stride of a tensor are multiples of 16 bytes, unless a comment says otherwise.
//
// The kernels cannot deadlock. All thread blocks run at the same time, on the `sm_count` SMs of the
// device, and the kernels of all ranks iterate over the elements in the same way. In an iteration a
// thread pushes before it waits, and it waits only for elements that other ranks push in earlier
// iterations. So the slowest rank can always continue.
namespace baton::cuda {

// Sorts `to`, which is in the order of the ranks, into the order in which a kernel pushes.
PeerTargets InPushOrder(const PeerTargets& to, const PeerParts& parts);

// One-shot all-reduce: x = the sum of all ranks' x, added in float32 as a tree (TreeSum) and
// rounded once. Each rank pushes its whole input to every peer. This is the fastest way for small
// sums.
cudaError_t LaunchOneShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream);

// Two-shot all-reduce, with the bits of LaunchOneShotSum. Each rank adds one slice of the elements
// and pushes the sum to every peer, so that a rank sends 2 · (ranks − 1) / ranks of its bytes.
// Error: cudaErrorInvalidValue if a slice is empty, or if a slot has no room for two slices
// (TwoShotBytes).
cudaError_t LaunchTwoShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream);

// The maximum size of a two-shot sum of `ranks` ranks through slots of `slot_bytes` bytes. A slot
// holds a slice of the sender's input, then a slice of sums.
constexpr size_t TwoShotBytes(size_t slot_bytes, int ranks) {
  return slot_bytes / (2 * sizeof(uint4)) * sizeof(uint4) * static_cast<size_t>(ranks);
}

// Rows in device memory. `data`, `row_bytes` and `stride` are multiples of 4 bytes.
struct PeerRows {
  std::byte* data = nullptr;  // null: no bytes
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride = 0;  // bytes from one row to the next

  bool operator==(const PeerRows&) const = default;
};

// The rows that a rank sends to its peers and receives from them in one exchange. A peer that
// receives no rows receives one word, so that LaunchPeerCopy is also a barrier.
struct PeerCopy {
  PeerRows own;
  PeerRows kept = {};  // with data: this rank also copies `own` to these rows
  // With data: the rank sends silu(own) · up instead of `own`, in bf16. All rows are multiples of
  // 16 bytes then.
  PeerRows up = {};
  // By rank, without this rank.
  std::array<bool, kMaxPeerRanks - 1> sends = {};     // whether that rank receives `own`
  std::array<PeerRows, kMaxPeerRanks - 1> from = {};  // receives the rows of that rank
  // Each 32-bit word is XORed with this before the transfer and after it, so that no word has the
  // bits of an empty slot. With 0, a NaN may change to another NaN.
  uint32_t flip = 0;
};
cudaError_t LaunchPeerCopy(const PeerCopy& copy,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           int sm_count,
                           cudaStream_t stream);

}  // namespace baton::cuda
