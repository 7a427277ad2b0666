#pragma once

#include <cstdint>

// Asynchronous copies of single vectors of 16 bytes from global to shared memory (cp.async), into
// rows of 128 bytes: vector v of row r is stored at place v ^ (r % 8). Neither ldmatrix nor wgmma
// then has bank conflicts. It is the 128-byte swizzle of TMA and wgmma (hopper.cuh).
namespace baton::cuda {

inline constexpr int kSwizzledRowBytes = 128;
inline constexpr int kSwizzledRowVectors = 8;

// The address of a vector of a row. `base` is a multiple of 1 KiB for wgmma.
__device__ __forceinline__ uint32_t SwizzledVector(uint32_t base, int row, int vector) {
  return base + static_cast<uint32_t>(row * kSwizzledRowBytes + (vector ^ (row & 7)) * 16);
}

// Copies 16 bytes to shared memory, or fills them with zeros when they are not `present`. `from` is
// a valid address either way.
__device__ __forceinline__ void CopyVector(uint32_t to, const void* from, bool present) {
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

// Waits until all but the last `pending` groups of the thread's copies have completed; at most 6.
__device__ __forceinline__ void WaitForGroups(int pending) {
  switch (pending) {
    case 0:
      asm volatile("cp.async.wait_group 0;");
      return;
    case 1:
      asm volatile("cp.async.wait_group 1;");
      return;
    case 2:
      asm volatile("cp.async.wait_group 2;");
      return;
    case 3:
      asm volatile("cp.async.wait_group 3;");
      return;
    case 4:
      asm volatile("cp.async.wait_group 4;");
      return;
    case 5:
      asm volatile("cp.async.wait_group 5;");
      return;
    default:
      asm volatile("cp.async.wait_group 6;");
  }
}

// Arrives at `barrier` once the thread's earlier copies have completed. The barrier counts the
// thread among the arrivals that it was initialised for.
__device__ __forceinline__ void ArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace baton::cuda
