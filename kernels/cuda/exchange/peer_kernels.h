#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/primitives/peer_parts.h"
#include "kernels/tensor.h"

// Kernels that move numbers through the slots of PeerSlots. A row of a tensor is a multiple of 16
// bytes, as are its address and its stride, unless a comment says otherwise.
namespace baton::cuda {

// Stores the numbers of `x`, without gaps between its rows, in the slots of the other ranks. The
// next kernel on the stream takes the parts of the others (TakePart).
cudaError_t LaunchPeerPush(const Tensor& x,
                           const PeerTargets& to,
                           const PeerParts& parts,
                           cudaStream_t stream);

// x = the sum of all ranks' x, added in float32 in the order of the ranks and rounded once.
cudaError_t LaunchPeerSum(const Tensor& x,
                          const PeerTargets& to,
                          const PeerParts& parts,
                          cudaStream_t stream);

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
                           cudaStream_t stream);

}  // namespace baton::cuda
