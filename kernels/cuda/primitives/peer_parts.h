#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace baton::cuda {

// The parts of a sum over the ranks: this rank has its own part, and the other ranks push theirs
// into its slots (PeerSlots). A word of a slot that has not arrived is kEmptySlot; the kernel that
// reads a slot empties it again.
struct PeerParts {
  uint4* slots = nullptr;  // [ranks − 1][slot_vectors], by rank without this one; null: no slots
  int64_t slot_vectors = 0;
  int32_t ranks = 0;
  int32_t rank = 0;
  const int32_t* aborted = nullptr;  // in host memory; not 0: the parts will not come
  int32_t* gave_up = nullptr;        // in device memory; not 0: a thread has seen `aborted`
};

inline constexpr int kMaxPeerRanks = 8;

// The slots of the other ranks that receive what this rank pushes.
using PeerTargets = std::array<uint4*, kMaxPeerRanks - 1>;

// As bf16 or float32 this is NaN. A number with these bits is pushed as another NaN.
inline constexpr uint32_t kEmptySlot = 0xffffffff;
inline constexpr uint32_t kPushedNan = 0x7fff7fff;

}  // namespace baton::cuda
