#pragma once

#include <cstdint>

#include "kernels/cuda/sums/peer_parts.h"

namespace baton::cuda {

// Loads and stores of memory that another GPU accesses at the same time.
__device__ __forceinline__ uint4 LoadVolatile(const uint4* from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadVolatile(const uint32_t* from) {
  return *static_cast<const volatile uint32_t*>(from);
}
__device__ __forceinline__ void StoreVolatile(uint4* to, const uint4& value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(value.x),
               "r"(value.y),
               "r"(value.z),
               "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreVolatile(uint32_t* to, uint32_t value) {
  *static_cast<volatile uint32_t*>(to) = value;
}

// The words of a vector may arrive one after the other, so each word is checked.
__device__ __forceinline__ bool HasEmptyWord(const uint4& value) {
  return value.x == kEmptySlot || value.y == kEmptySlot || value.z == kEmptySlot ||
         value.w == kEmptySlot;
}
__device__ __forceinline__ bool HasEmptyWord(uint32_t word) {
  return word == kEmptySlot;
}
__device__ __forceinline__ void Empty(uint4* slot) {
  *slot = make_uint4(kEmptySlot, kEmptySlot, kEmptySlot, kEmptySlot);
}
__device__ __forceinline__ void Empty(uint32_t* slot) {
  *slot = kEmptySlot;
}

// Returns `word`, or another NaN if `word` has the bits of an empty slot.
__device__ __forceinline__ uint32_t Pushed(uint32_t word) {
  return word == kEmptySlot ? kPushedNan : word;
}
__device__ __forceinline__ uint4 Pushed(const uint4& value) {
  return make_uint4(Pushed(value.x), Pushed(value.y), Pushed(value.z), Pushed(value.w));
}

// Waits until `slot` is full, empties the slot and returns the unit that it held. A unit is a
// vector of 16 bytes or a word. The caller passes the result of a first load as `unit`.
template <class Unit>
__device__ __forceinline__ Unit TakeSlot(const PeerParts& parts, Unit* slot, Unit unit) {
  // A read of `aborted` takes microseconds, because it is in host memory. The first thread that
  // reads an abort sets `gave_up` for all later waits, because a step of a prompt has thousands of
  // waits one after the other.
  constexpr uint32_t kSpinsPerAbortCheck = 1u << 14;
  constexpr uint32_t kSpinsPerGaveUpCheck = 1u << 4;
  for (uint32_t spins = 1; HasEmptyWord(unit); ++spins) {
    if (spins % kSpinsPerGaveUpCheck == 0 &&
        *static_cast<const volatile int32_t*>(parts.gave_up) != 0) {
      break;
    }
    if (spins % kSpinsPerAbortCheck == 0 &&
        *static_cast<const volatile int32_t*>(parts.aborted) != 0) {
      *static_cast<volatile int32_t*>(parts.gave_up) = 1;
      break;
    }
    unit = LoadVolatile(slot);
  }
  Empty(slot);
  return unit;
}

// Waits until unit `at` of the part of another rank has arrived. Returns the unit and empties it in
// the slot.
template <class Unit = uint4>
__device__ __forceinline__ Unit TakePart(const PeerParts& parts, int32_t rank, int64_t at) {
  const int32_t slot = rank - (rank > parts.rank ? 1 : 0);
  Unit* const from = reinterpret_cast<Unit*>(parts.slots + slot * parts.slot_vectors) + at;
  return TakeSlot(parts, from, LoadVolatile(from));
}

// Takes vector `at` of the parts of the first `count` other ranks; `count` is at most kPeers. Loads
// all vectors before the first wait, so that their latencies of almost a microsecond overlap.
template <int kPeers>
__device__ __forceinline__ void TakeParts(const PeerParts& parts,
                                          int32_t count,
                                          int64_t at,
                                          uint4 (&vectors)[kPeers]) {
  uint4* const first = parts.slots + at;
#pragma unroll
  for (int32_t peer = 0; peer < kPeers; ++peer) {
    if (peer < count) vectors[peer] = LoadVolatile(first + peer * parts.slot_vectors);
  }
#pragma unroll
  for (int32_t peer = 0; peer < kPeers; ++peer) {
    if (peer >= count) continue;
    vectors[peer] = TakeSlot(parts, first + peer * parts.slot_vectors, vectors[peer]);
  }
}

}  // namespace baton::cuda
