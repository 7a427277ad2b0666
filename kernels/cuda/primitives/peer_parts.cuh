#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/peer_parts.h"

namespace baton::cuda {

// Loads and stores that another GPU sees or makes meanwhile.
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

// A vector may arrive in pieces, so each of its words is checked.
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

// What is pushed for a number: any bits but those of an empty slot.
__device__ __forceinline__ uint32_t Pushed(uint32_t word) {
  return word == kEmptySlot ? kPushedNan : word;
}
__device__ __forceinline__ uint4 Pushed(const uint4& value) {
  return make_uint4(Pushed(value.x), Pushed(value.y), Pushed(value.z), Pushed(value.w));
}

// Waits until unit `at` of the part of `rank`, which is not this rank, has arrived. Returns it and
// empties its place. A unit is a vector of 16 bytes or a word.
template <class Unit = uint4>
__device__ __forceinline__ Unit TakePart(const PeerParts& parts, int32_t rank, int64_t at) {
  // `aborted` is in host memory, which takes microseconds to read. The thread that sees it tells
  // the others through `gave_up`, because a prompt's step has thousands of waits one after the
  // other.
  constexpr uint32_t kSpinsBetweenLooks = 1u << 14;
  constexpr uint32_t kSpinsBetweenFlags = 1u << 6;
  const int32_t slot = rank - (rank > parts.rank ? 1 : 0);
  Unit* const from = reinterpret_cast<Unit*>(parts.slots + slot * parts.slot_vectors) + at;
  Unit value = LoadVolatile(from);
  for (uint32_t spins = 1; HasEmptyWord(value); ++spins) {
    if (spins % kSpinsBetweenFlags == 0 &&
        *static_cast<const volatile int32_t*>(parts.gave_up) != 0) {
      break;
    }
    if (spins % kSpinsBetweenLooks == 0 &&
        *static_cast<const volatile int32_t*>(parts.aborted) != 0) {
      *static_cast<volatile int32_t*>(parts.gave_up) = 1;
      break;
    }
    value = LoadVolatile(from);
  }
  Empty(from);
  return value;
}

}  // namespace baton::cuda
