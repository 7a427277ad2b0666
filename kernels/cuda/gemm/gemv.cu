#include <algorithm>

#include "kernels/cuda/gemm/gemv.cuh"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace gemv {
namespace {

// The chunks that one warp computes, and the ring through which they stream. Chunk c belongs to the
// warp's row c / chunks. With kPairs, rows of gate and up alternate.
template <int kChunk, bool kPairs>
struct WarpRing {
  static constexpr int kSlots = kRingBytes / (kWarps * kChunk * 2);
  static_assert(kWarps * kSlots * 8 <= kBarrierBytes);

  const Arguments& a;
  __nv_bfloat16* slots;
  uint32_t barriers;
  int chunks;  // per row
  int stride;  // between two outputs of a warp
  int first;   // first output of the warp
  int total;   // chunks of the warp

  __device__ WarpRing(const Arguments& arguments, unsigned char* memory, int warp)
      : a(arguments),
        slots(reinterpret_cast<__nv_bfloat16*>(memory) + warp * kSlots * kChunk),
        barriers(SharedAddress(memory + kRingBytes) + static_cast<uint32_t>(warp * kSlots * 8)),
        chunks(a.k / kChunk),
        stride(static_cast<int>(gridDim.x) * kWarps),
        first(static_cast<int>(blockIdx.x) * kWarps + warp) {
    const int mine = first < a.outputs ? CeilDiv(a.outputs - first, stride) : 0;
    total = mine * (kPairs ? 2 : 1) * chunks;
  }

  __device__ int Output(int row) const { return first + (kPairs ? row / 2 : row) * stride; }
  __device__ uint32_t Barrier(int slot) const { return barriers + static_cast<uint32_t>(slot * 8); }
  __device__ const __nv_bfloat16* Source(int chunk) const {
    const int row = chunk / chunks;
    const int64_t line = Output(row) + (kPairs && row % 2 == 1 ? a.outputs : 0);
    return static_cast<const __nv_bfloat16*>(a.weight) + line * a.k +
           (chunk - row * chunks) * kChunk;
  }

#if __CUDA_ARCH__ >= 900
  // Initialises the ring and starts its first copies. One lane of the warp calls Fill and Fetch.
  __device__ void Fill() const {
    InitBarriers(barriers, kSlots);
    for (int chunk = 0; chunk < min(kSlots, total); ++chunk) Fetch(chunk, chunk);
  }
  __device__ void Fetch(int chunk, int slot) const {
    ArriveExpectTx(Barrier(slot), kChunk * 2);
    BulkCopy(SharedAddress(slots + slot * kChunk), Source(chunk), kChunk * 2, Barrier(slot));
  }
#endif
};

__device__ __forceinline__ float Dot8(const Packed8& a, const Packed8& b, float sum) {
  float left[8];
  float right[8];
  Unpack(a, left);
  Unpack(b, right);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(left[i], right[i], sum);
  return sum;
}

// One bulk copy moves kChunk numbers of a row. With kPairs, output i is silu(row i) · row (outputs
// + i).
template <int kChunk, bool kNorm, bool kPairs, class Out>
__global__ void __launch_bounds__(kThreads, 1) GemvKernel(const __grid_constant__ Arguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  ReleaseSuccessor();
  using Ring = WarpRing<kChunk, kPairs>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Ring ring(a, memory, static_cast<int>(threadIdx.x) / kWarp);
  auto* x = reinterpret_cast<__nv_bfloat16*>(memory + kRingBytes + kBarrierBytes);
  if (lane == 0) ring.Fill();
  __syncwarp();
  WaitForPredecessor();
  const auto in_place = [](int group) { return group; };
  if (kNorm) {
    LoadNormed(a, x, in_place);
  } else {
    LoadInput(a, x, in_place);
  }

  int slot = 0;
  uint32_t phase = 0;
  int column = 0;  // chunk within the row
  int row = 0;
  float sum = 0;
  float gate = 0;
  for (int chunk = 0; chunk < ring.total; ++chunk) {
    WaitBarrier(ring.Barrier(slot), phase);
    constexpr int kGroups = kChunk / 8;  // a lane loads one at a time
    constexpr int kTurns = (kGroups + kWarp - 1) / kWarp;
    const auto has = [&](int turn) {
      return kGroups % kWarp == 0 || turn * kWarp + lane < kGroups;
    };
    Packed8 weights[kTurns];
    const __nv_bfloat16* from = ring.slots + slot * kChunk + lane * 8;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (has(i)) weights[i] = Load8(from + i * kWarp * 8);
    }
    __syncwarp();
    if (lane == 0 && chunk + Ring::kSlots < ring.total) ring.Fetch(chunk + Ring::kSlots, slot);
    const __nv_bfloat16* inputs = x + column * kChunk + lane * 8;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      if (has(i)) sum = Dot8(weights[i], Load8(inputs + i * kWarp * 8), sum);
    }
    if (++slot == Ring::kSlots) {
      slot = 0;
      phase ^= 1;
    }
    if (++column < ring.chunks) continue;
    const float value = SumOverWarp(sum);
    column = 0;
    sum = 0;
    if (kPairs && row % 2 == 0) {
      gate = value;
    } else if (lane == 0) {
      Store<Out>(a, ring.Output(row), kPairs ? SiluMul(gate, value) : value);
    }
    ++row;
  }
#endif
}

struct Plain {
  static constexpr bool kOddChunks = true;
  template <int kChunk, bool kNorm, bool kPairs, class Out>
  static constexpr Kernel kKernel = GemvKernel<kChunk, kNorm, kPairs, Out>;
};

}  // namespace
}  // namespace gemv

cudaError_t LaunchGemv(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
  const gemv::Kernel kernel = problem.weight_dtype == DType::kFp8
                                  ? gemv::Fp8KernelFor(problem)
                                  : gemv::Choose<gemv::Plain>(problem);
  const size_t shared = gemv::SharedBytes(problem.k);
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (error != cudaSuccess) return error;
  return LaunchOverlapped(kernel,
                          dim3(static_cast<unsigned>(sm_count)),
                          dim3(gemv::kThreads),
                          shared,
                          stream,
                          gemv::ArgumentsOf(problem));
}

}  // namespace baton::cuda
