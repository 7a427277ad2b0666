#pragma once

#include <cuda.h>

#include <cstdint>

// Hopper's instructions for barriers, copies of boxes, matrix pieces and clusters, and sm_80's for
// the sums. Addresses of shared memory are 32-bit.
namespace baton::cuda {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the phase last until `bytes` more bytes have come.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void AwaitPhase(uint32_t barrier, uint32_t parity) {
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

// Copies the box whose first number is (row, column) of the map's matrix.
__device__ __forceinline__ void FetchBox(
    uint32_t to, const CUtensorMap* map, int32_t column, int32_t row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map),
      "r"(column),
      "r"(row),
      "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void FetchBytes(uint32_t to,
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

__device__ __forceinline__ void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void AwaitCluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// This block's address as seen in block `rank` of the cluster.
__device__ __forceinline__ uint32_t AddressIn(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

__device__ __forceinline__ void StoreInCluster(uint32_t address, const float (&v)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "f"(v[0]),
               "f"(v[1]),
               "f"(v[2]),
               "f"(v[3])
               : "memory");
}

__device__ __forceinline__ void StoreInCluster(uint32_t address, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
#endif

__device__ __forceinline__ void StoreShared(uint32_t address, const float (&v)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "f"(v[0]),
               "f"(v[1]),
               "f"(v[2]),
               "f"(v[3])
               : "memory");
}

__device__ __forceinline__ void StoreShared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

// A barrier of the block's first `count` threads.
__device__ __forceinline__ void SyncThreads(int32_t count) {
  asm volatile("barrier.sync 1, %0;" ::"r"(count) : "memory");
}

__device__ __forceinline__ float4 LoadShared4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ float2 LoadShared2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ float LoadShared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}

// Two, or four, matrices of 8 × 8 numbers of 16 bits; lane i gives the address of line i.
__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&to)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// sums[16][8] += left[16][16] · right[16][8], in the fragments of mma.m16n8k16.
__device__ __forceinline__ void MultiplyAdd(float (&sums)[4],
                                            const uint32_t (&left)[4],
                                            const uint32_t (&right)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

}  // namespace baton::cuda
