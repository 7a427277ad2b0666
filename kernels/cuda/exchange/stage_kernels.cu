#include <algorithm>

#include "kernels/cuda/exchange/stage_kernels.h"
#include "kernels/cuda/exchange/unit_rows.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
// Enough thread blocks to fill a link. The limit leaves SMs free while a receiver waits.
constexpr int kMaxBlocks = 128;

__device__ __forceinline__ uint32_t LoadAcquired(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreReleased(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Waits for the peer before message number `message`: a sender waits until the message's slot is
// free, a receiver waits until the message has arrived.
template <bool kSends>
__device__ __forceinline__ void WaitForPeer(const StageEnd& end, uint32_t message) {
  // A read of `aborted` takes microseconds, because it is in host memory.
  constexpr uint32_t kSpinsPerAbortCheck = 1u << 12;
  for (uint32_t spins = 1;; ++spins) {
    const uint32_t count = LoadAcquired(end.peer_count);
    if (kSends ? message - count < kStageSlots : count != message) return;
    if (spins % kSpinsPerAbortCheck == 0 &&
        *static_cast<const volatile int32_t*>(end.aborted) != 0) {
      return;
    }
  }
}

// Moves one message. Each thread block waits for the peer by itself. The thread block that finishes
// last reports the new count to the peer. The fence before the count and the release of
// `count_at_peer` order the message of all thread blocks before the acquire of the peer
// (docs/memory_ordering.md).
template <bool kSends, class Unit>
__global__ void __launch_bounds__(kThreads)
    StageKernel(const UnitRows<Unit> x, const StageEnd end) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const uint32_t message = *static_cast<const volatile uint32_t*>(end.own_count);
  if (threadIdx.x == 0) WaitForPeer<kSends>(end, message);
  __syncthreads();
  auto* const slot = reinterpret_cast<Unit*>(end.slots + message % kStageSlots * end.slot_bytes);
  const auto stride = static_cast<int32_t>(gridDim.x) * kThreads;
  const auto first =
      static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
#pragma unroll 4
  for (int32_t i = first; i < x.count; i += stride) {
    if constexpr (kSends) {
      slot[i] = *x.at(i);
    } else {
      *x.at(i) = __ldcg(slot + i);  // the peer's stores bypass this SM's L1 cache
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(end.finished_blocks, 1u) + 1 != gridDim.x) return;
  *end.finished_blocks = 0;
  *end.own_count = message + 1;
  __threadfence_system();
  StoreReleased(end.count_at_peer, message + 1);
}

template <bool kSends, class Unit>
cudaError_t LaunchKernel(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  const auto rows = UnitRows<Unit>::Of(x);
  const int blocks = std::clamp(CeilDiv(rows.count, kThreads), 1, kMaxBlocks);
  return LaunchOverlapped(StageKernel<kSends, Unit>,
                          dim3(static_cast<unsigned>(blocks)),
                          dim3(kThreads),
                          0,
                          stream,
                          rows,
                          end);
}

template <bool kSends>
cudaError_t Launch(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  const auto bytes = static_cast<int64_t>(ShapeOf(x.dtype).bytes);
  const int64_t all = (x.cols | x.stride) * bytes | reinterpret_cast<int64_t>(x.data);
  if (all % static_cast<int64_t>(sizeof(uint4)) == 0) {
    return LaunchKernel<kSends, uint4>(x, end, stream);
  }
  return LaunchKernel<kSends, uint32_t>(x, end, stream);
}

}  // namespace

cudaError_t LaunchStageSend(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  return Launch<true>(x, end, stream);
}

cudaError_t LaunchStageReceive(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  return Launch<false>(x, end, stream);
}

}  // namespace baton::cuda
