#pragma once

#include <cuda.h>

#include <cstdint>

// Hopper's instructions for barriers in shared memory, bulk copies and clusters, and the
// descriptors and fences of wgmma (wgmma.cuh). Addresses of shared memory are 32-bit.
namespace baton::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Orders this thread's accesses of shared memory through the generic proxy, and those that it has
// observed of other threads, before later accesses through the async proxy (bulk copies, wgmma).
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes initialised barriers visible to bulk copies and, after a cluster barrier, to the other
// blocks of the cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  FenceAsyncProxy();
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives. The barrier's current phase then also waits for `bytes` more bytes.
__device__ __forceinline__ void ArriveExpectTx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity has completed.
__device__ __forceinline__ void WaitBarrier(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  while (over == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Copies `bytes` consecutive bytes, a multiple of 16, from global to shared memory. The bytes count
// towards `barrier`.
__device__ __forceinline__ void BulkCopy(uint32_t to,
                                         const void* from,
                                         uint32_t bytes,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from),
      "r"(bytes),
      "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Prefetches the 32 bytes at `from` into the L2 cache.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

// L2 cache policies: how long the L2 cache keeps the data that a copy reads.
inline constexpr uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;

// Copies the three-dimensional box that begins at (x, y, z) in the tensor map's coordinates to
// shared memory. Its bytes count towards `barrier`.
__device__ __forceinline__ void TmaLoad(uint32_t to,
                                        const CUtensorMap* map,
                                        int32_t x,
                                        int32_t y,
                                        int32_t z,
                                        uint32_t barrier,
                                        uint64_t eviction) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(barrier),
      "l"(eviction)
      : "memory");
}

// As TmaLoad, to the same address in both blocks of a cluster of two. In each block, the bytes
// count towards that block's own barrier.
__device__ __forceinline__ void TmaLoadMulticast(uint32_t to,
                                                 const CUtensorMap* map,
                                                 int32_t x,
                                                 int32_t y,
                                                 int32_t z,
                                                 uint32_t barrier,
                                                 uint64_t eviction) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to),
      "l"(map),
      "r"(x),
      "r"(y),
      "r"(z),
      "r"(barrier),
      "h"(kBoth),
      "l"(eviction)
      : "memory");
}

// As TmaLoadMulticast, from a map of MakeMixedTensorMap: the span that begins at number `x`, of the
// rows from group `group` of kMixedRows rows on.
__device__ __forceinline__ void TmaLoadMixedMulticast(uint32_t to,
                                                      const CUtensorMap* map,
                                                      int32_t x,
                                                      int32_t group,
                                                      uint32_t barrier,
                                                      uint64_t eviction) {
  constexpr uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6, %7;" ::"r"(
          to),
      "l"(map),
      "r"(x),
      "r"(0),
      "r"(group),
      "r"(barrier),
      "h"(kBoth),
      "l"(eviction)
      : "memory");
}

// Copies the four-dimensional box that begins at (0, y, 0, w) in the tensor map's coordinates to
// the same address in the shared memory of each of kBlocks blocks of a cluster, 1 or 2. In each
// block, the bytes count towards that block's own barrier.
template <int kBlocks>
__device__ __forceinline__ void TmaLoadPaged(
    uint32_t to, const CUtensorMap* map, int32_t y, int32_t w, uint32_t barrier) {
  if constexpr (kBlocks == 1) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %2, %4}], [%5];" ::"r"(to),
        "l"(map),
        "r"(0),
        "r"(y),
        "r"(w),
        "r"(barrier)
        : "memory");
  } else {
    constexpr uint16_t kBoth = 3;
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
        "l"(map),
        "r"(0),
        "r"(y),
        "r"(w),
        "r"(barrier),
        "h"(kBoth)
        : "memory");
  }
}

// Waits until `threads` threads of the block, whole warps, have called it with this `barrier` (1 to
// 15).
__device__ __forceinline__ void SyncThreads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The cluster address of the location that `address` names in the shared memory of block `rank`.
__device__ __forceinline__ uint32_t MapToRank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Arrives at the barrier of another block of the cluster. MapToRank gives its address.
__device__ __forceinline__ void ArriveRemote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Stores `value` in the shared memory of a block of the cluster. Its 4 bytes count towards
// `barrier` of the same block. MapToRank gives both addresses.
__device__ __forceinline__ void StoreRemoteAsync(uint32_t to, int32_t value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(value),
      "r"(barrier)
      : "memory");
}

__device__ __forceinline__ float4 LoadRemote4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// wgmma exists on Hopper alone (sm_90a), not on later architectures. So does the reallocation of
// registers between warp groups. All warps of a warp group must call the same function.
template <int kRegisters>
__device__ __forceinline__ void IncreaseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void DecreaseRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The descriptor of a matrix in shared memory. Its lines of 128 bytes lie in groups of 8 that start
// at multiples of 1 KiB, and the 16-byte pieces of a group are permuted (the 128-byte swizzle).
// `group_bytes` is the distance between groups. `span_bytes` is that between spans of 64 columns,
// for a matrix whose lines are rows of k (WgmmaMultiplyRows). Source: PTX ISA, "Matrix descriptor
// format".
__device__ __forceinline__ uint64_t SmemDescriptor(uint32_t address,
                                                   uint32_t group_bytes = 1024,
                                                   uint32_t span_bytes = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t{group_bytes >> 4} << 32 | uint64_t{span_bytes >> 4} << 16 |
         ((address & 0x3ffff) >> 4);
}

// Required before a warp group's first wgmma, and before a wgmma whose accumulator registers the
// warp group has accessed.
__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the committed groups are still running.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
#endif

}  // namespace baton::cuda
