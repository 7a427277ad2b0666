#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/primitives/peer_parts.h"
#include "kernels/tensor.h"

// Kernels that move numbers through the slots of PeerSlots. A row of a tensor is a multiple of 16
// bytes, as are its address and its stride, unless a comment says otherwise.
//
// All thread blocks run at the same time, on the `sm_count` SMs of the device, and the kernels of
// all ranks go through the numbers in equal steps. In a step a thread pushes before it waits, and
// it waits only for what other ranks push in earlier steps. So the rank that is behind the others
// can always go on.
namespace baton::cuda {

// `to`, which is in the order of the ranks, in the order in which kernels push.
PeerTargets InPushOrder(const PeerTargets& to, const PeerParts& parts);

// x = the sum of all ranks' x, added in float32 as a tree (TreeSum) and rounded once. Every
// rank pushes all of its numbers to all other ranks, which takes the least time for small sums.
cudaError_t LaunchOneShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream);

// The same, with the same bits. Every rank adds one slice of the numbers and pushes the sum to the
// others, so that a rank sends 2 · (ranks − 1) / ranks of its bytes. Error: cudaErrorInvalidValue
// when a slice is empty, or when a slot has no room for two slices (TwoShotBytes).
cudaError_t LaunchTwoShotSum(const Tensor& x,
                             const PeerTargets& to,
                             const PeerParts& parts,
                             int sm_count,
                             cudaStream_t stream);

// The most bytes of a two-shot sum of `ranks` ranks through slots of `slot_bytes` bytes. A slot
// holds a slice of the numbers of its rank, and then a slice of sums.
constexpr size_t TwoShotBytes(size_t slot_bytes, int ranks) {
  return slot_bytes / (2 * sizeof(uint4)) * sizeof(uint4) * static_cast<size_t>(ranks);
}

// Rows in device memory, in bytes: all numbers are multiples of 4.
struct PeerRows {
  std::byte* data = nullptr;  // null: no bytes
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride = 0;

  bool operator==(const PeerRows&) const = default;
};

// What one rank sends to the others and receives from them, all at once. Ranks to which nothing is
// sent learn at least that this rank has come.
struct PeerCopy {
  PeerRows own;
  PeerRows kept = {};  // where this rank wants a copy of `own`
  // By rank, without this one.
  std::array<bool, kMaxPeerRanks - 1> sends = {};  // whether that rank receives `own`
  std::array<PeerRows, kMaxPeerRanks - 1> from = {};
  // Every 32-bit word is transferred as its exclusive or with this, so that no number has the bits
  // of an empty slot. With 0, NaNs may change to other NaNs.
  uint32_t flip = 0;
};
cudaError_t LaunchPeerCopy(const PeerCopy& copy,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           int sm_count,
                           cudaStream_t stream);

}  // namespace baton::cuda
