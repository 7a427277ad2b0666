#include <algorithm>

#include "kernels/cuda/exchange/stage_kernels.h"
#include "kernels/cuda/exchange/unit_rows.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
// Enough to fill a link. A receiver that waits leaves the other SMs alone.
constexpr int kMaxBlocks = 128;

__device__ __forceinline__ uint32_t LoadAcquired(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreReleased(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Waits until the other end has gone far enough for message `message` of this end: a sender until
// the slot is free, a receiver until the message is there.
template <bool kSends>
__device__ __forceinline__ void WaitForOtherEnd(const StageEnd& end, uint32_t message) {
  // `aborted` is in host memory, which takes microseconds to read.
  constexpr uint32_t kSpinsBetweenLooks = 1u << 12;
  for (uint32_t spins = 1;; ++spins) {
    const uint32_t other = LoadAcquired(end.other);
    if (kSends ? message - other < kStageSlots : other != message) return;
    if (spins % kSpinsBetweenLooks == 0 &&
        *static_cast<const volatile int32_t*>(end.aborted) != 0) {
      return;
    }
  }
}

// Moves one message. Each thread block waits for itself; the last one that is done tells the other
// end. The fence before the count and the release of `tell` order the message of all thread blocks
// before the acquire of the other end (docs/memory_ordering.md).
template <bool kSends, class Unit>
__global__ void __launch_bounds__(kThreads)
    StageKernel(const UnitRows<Unit> x, const StageEnd end) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const uint32_t message = *static_cast<const volatile uint32_t*>(end.count);
  if (threadIdx.x == 0) WaitForOtherEnd<kSends>(end, message);
  __syncthreads();
  auto* const slot = reinterpret_cast<Unit*>(end.slots + message % kStageSlots * end.slot_bytes);
  const auto step = static_cast<int32_t>(gridDim.x) * kThreads;
  const auto first =
      static_cast<int32_t>(blockIdx.x) * kThreads + static_cast<int32_t>(threadIdx.x);
#pragma unroll 4
  for (int32_t i = first; i < x.count; i += step) {
    if constexpr (kSends) {
      slot[i] = *x.at(i);
    } else {
      *x.at(i) = __ldcg(slot + i);  // the other GPU writes past this SM's L1 cache
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(end.blocks, 1u) + 1 != gridDim.x) return;
  *end.blocks = 0;
  *end.count = message + 1;
  __threadfence_system();
  StoreReleased(end.tell, message + 1);
}

template <bool kSends, class Unit>
cudaError_t LaunchOf(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
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
    return LaunchOf<kSends, uint4>(x, end, stream);
  }
  return LaunchOf<kSends, uint32_t>(x, end, stream);
}

}  // namespace

cudaError_t LaunchStageSend(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  return Launch<true>(x, end, stream);
}

cudaError_t LaunchStageReceive(const Tensor& x, const StageEnd& end, cudaStream_t stream) {
  return Launch<false>(x, end, stream);
}

}  // namespace baton::cuda
