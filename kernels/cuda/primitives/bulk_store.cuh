#pragma once

#include <cstdint>

// Bulk copies from shared to global memory (sm_90 and newer). They belong to the thread that issues
// them. Threads order their writes of shared memory before them with FenceAsyncProxy (hopper.cuh).
namespace baton::cuda {

#if __CUDA_ARCH__ >= 900
// Copies `bytes` consecutive bytes, a multiple of 16.
__device__ __forceinline__ void BulkStore(void* to, uint32_t from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void CommitBulkStores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until the thread's committed copies have read shared memory.
__device__ __forceinline__ void WaitBulkStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until they have written global memory, for accesses of all kinds after this.
__device__ __forceinline__ void WaitBulkStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
#endif

}  // namespace baton::cuda
