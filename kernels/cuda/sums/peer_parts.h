#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

namespace baton::cuda {

// The slots of this rank (PeerSlots), into which the other ranks push their parts of a sum. A word
// that has not arrived is kEmptySlot. The kernel that reads a word sets it to kEmptySlot again.
struct PeerParts {
  uint4* slots = nullptr;  // [ranks − 1][slot_vectors], by rank, without this rank; null: no slots
  int64_t slot_vectors = 0;
  int32_t ranks = 0;
  int32_t rank = 0;
  const int32_t* aborted = nullptr;  // in host memory; not 0: the parts will not arrive
  int32_t* gave_up = nullptr;  // in device memory; not 0: a thread has read `aborted` as not 0
};

inline constexpr int kMaxPeerRanks = 8;

// The slots on the other ranks into which this rank pushes.
using PeerTargets = std::array<uint4*, kMaxPeerRanks - 1>;

// The bits of an empty slot are a NaN in bf16 and in float32. An element with these bits is pushed
// as another NaN.
inline constexpr uint32_t kEmptySlot = 0xffffffff;
inline constexpr uint32_t kPushedNan = 0x7fff7fff;

}  // namespace baton::cuda
