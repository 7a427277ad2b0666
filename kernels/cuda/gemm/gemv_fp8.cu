#include <algorithm>

#include "kernels/cuda/gemm/gemv.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"

// The GEMV for an FP8 weight. FP8 numbers arrive twice as fast as bf16 ones, which leaves half the
// time to compute with each. A warp therefore computes two rows of the weight at once, so that it
// reads x half as often. It converts weights to float32 in registers; x stays bf16.
namespace baton::cuda::gemv {
namespace {

constexpr int kLaneNumbers = 16;                    // numbers that a lane reads at once
constexpr int kWarpNumbers = kWarp * kLaneNumbers;  // numbers that a warp reads at once

// The pairs of rows that one warp computes, and the ring through which they stream: a slot holds a
// chunk of both rows. Pair i is rows i and outputs + i with kPairs, rows 2 i and 2 i + 1 without.
template <int kChunk, bool kPairs>
struct PairRing {
  static constexpr int kSlotBytes = 2 * kChunk;
  static constexpr int kSlots = kRingBytes / (kWarps * kSlotBytes);
  static_assert(kWarps * kSlots * 8 <= kBarrierBytes);

  const Arguments& a;
  unsigned char* slots;
  uint32_t barriers;
  int chunks;  // per row
  int stride;  // between two pairs of a warp
  int first;   // first pair of the warp
  int total;   // slots that the warp's pairs fill

  __device__ PairRing(const Arguments& arguments, unsigned char* memory, int warp)
      : a(arguments),
        slots(memory + warp * kSlots * kSlotBytes),
        barriers(SharedAddress(memory + kRingBytes) + static_cast<uint32_t>(warp * kSlots * 8)),
        chunks(a.k / kChunk),
        stride(static_cast<int>(gridDim.x) * kWarps),
        first(static_cast<int>(blockIdx.x) * kWarps + warp) {
    const int pairs = kPairs ? a.outputs : a.outputs / 2;
    total = first < pairs ? CeilDiv(pairs - first, stride) * chunks : 0;
  }

  __device__ int Pair(int turn) const { return first + turn * stride; }
  __device__ int Row(int pair, int which) const {
    return kPairs ? pair + which * a.outputs : 2 * pair + which;
  }
  __device__ uint32_t Barrier(int slot) const { return barriers + static_cast<uint32_t>(slot * 8); }

#if __CUDA_ARCH__ >= 900
  // Initialises the ring and starts its first copies. One lane of the warp calls Fill and Fetch.
  __device__ void Fill() const {
    InitBarriers(barriers, kSlots);
    for (int chunk = 0; chunk < min(kSlots, total); ++chunk) Fetch(chunk, chunk);
  }
  __device__ void Fetch(int chunk, int slot) const {
    const int turn = chunk / chunks;
    const int column = (chunk - turn * chunks) * kChunk;
    ArriveExpectTx(Barrier(slot), kSlotBytes);
    for (int which = 0; which < 2; ++which) {
      const auto* from = static_cast<const unsigned char*>(a.weight) +
                         static_cast<int64_t>(Row(Pair(turn), which)) * a.k + column;
      BulkCopy(
          SharedAddress(slots + slot * kSlotBytes + which * kChunk), from, kChunk, Barrier(slot));
    }
  }
#endif
};

// Adds to `sums` the dot products of 16 neighbouring numbers of each of two rows with those of x.
__device__ __forceinline__ void AddDots(const uint4 (&rows)[2],
                                        const Packed8 (&x)[2],
                                        float (&sums)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float inputs[8];
    Unpack(x[half], inputs);
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      float weights[8];
      UnpackFp8(half == 0 ? rows[which].x : rows[which].z, weights);
      UnpackFp8(half == 0 ? rows[which].y : rows[which].w, weights + 4);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[which] = fmaf(weights[i], inputs[i], sums[which]);
    }
  }
}

// A slot of the ring holds kChunk numbers of two rows. With kPairs, output i is silu(row i) ·
// row (outputs + i).
template <int kChunk, bool kNorm, bool kPairs, class Out>
__global__ void __launch_bounds__(kThreads, 1) Fp8GemvKernel(const __grid_constant__ Arguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  ReleaseSuccessor();
  using Ring = PairRing<kChunk, kPairs>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Ring ring(a, memory, static_cast<int>(threadIdx.x) / kWarp);
  auto* x = reinterpret_cast<__nv_bfloat16*>(memory + kRingBytes + kBarrierBytes);
  if (lane == 0) ring.Fill();
  __syncwarp();
  WaitForPredecessor();
  // Each lane needs two neighbouring groups of 8, in two loads. Of every kWarpNumbers numbers, the
  // groups of the first load are stored before those of the second, so that a load of the whole
  // warp reads 512 consecutive bytes.
  const auto place = [](int group) {
    const int inside = group % (kWarpNumbers / 8);
    return group - inside + inside % 2 * kWarp + inside / 2;
  };
  if (kNorm) {
    LoadNormed(a, x, place);
  } else {
    LoadInput(a, x, place);
  }

  int slot = 0;
  uint32_t phase = 0;
  int column = 0;  // chunk within the row
  int turn = 0;
  float sums[2] = {};
  float scales[2] = {};
  for (int chunk = 0; chunk < ring.total; ++chunk) {
    if (column == 0) {
      scales[0] = a.weight_scales[ring.Row(ring.Pair(turn), 0)];
      scales[1] = a.weight_scales[ring.Row(ring.Pair(turn), 1)];
    }
    WaitBarrier(ring.Barrier(slot), phase);
    constexpr int kTurns = kChunk / kWarpNumbers;
    uint4 rows[kTurns][2];
    const unsigned char* from = ring.slots + slot * Ring::kSlotBytes + lane * kLaneNumbers;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      rows[i][0] = *reinterpret_cast<const uint4*>(from + i * kWarpNumbers);
      rows[i][1] = *reinterpret_cast<const uint4*>(from + kChunk + i * kWarpNumbers);
    }
    __syncwarp();
    if (lane == 0 && chunk + Ring::kSlots < ring.total) ring.Fetch(chunk + Ring::kSlots, slot);
    const __nv_bfloat16* inputs = x + column * kChunk + lane * 8;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const Packed8 halves[2] = {Load8(inputs + i * kWarpNumbers),
                                 Load8(inputs + i * kWarpNumbers + kWarpNumbers / 2)};
      AddDots(rows[i], halves, sums);
    }
    if (++slot == Ring::kSlots) {
      slot = 0;
      phase ^= 1;
    }
    if (++column < ring.chunks) continue;
    const float one = SumOverWarp(sums[0]) * scales[0];
    const float two = SumOverWarp(sums[1]) * scales[1];
    if (lane == 0) {
      const int pair = ring.Pair(turn);
      if (kPairs) {
        Store<Out>(a, pair, SiluMul(one, two));
      } else {
        Store<Out>(a, 2 * pair, one);
        Store<Out>(a, 2 * pair + 1, two);
      }
    }
    column = 0;
    ++turn;
    sums[0] = 0;
    sums[1] = 0;
  }
#endif
}

struct Fp8 {
  static constexpr bool kOddChunks = false;
  template <int kChunk, bool kNorm, bool kPairs, class Out>
  static constexpr Kernel kKernel = Fp8GemvKernel<kChunk, kNorm, kPairs, Out>;
};

}  // namespace

Kernel Fp8KernelFor(const GemmProblem& problem) {
  return Choose<Fp8>(problem);
}

}  // namespace baton::cuda::gemv
