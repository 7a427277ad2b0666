#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/gemm/skinny_arguments.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/rows/silu.cuh"

// The epilogue of the skinny GEMM: it adds the accumulators of all warp groups and thread blocks,
// scales the results and writes them.
namespace baton::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The numbers to which four outputs are added: those of `out` with `accumulate`, else zeros.
__device__ __forceinline__ float4 LoadAddend(const SkinnyArguments& a,
                                             int32_t row,
                                             int32_t output) {
  if (!a.accumulate) return make_float4(0, 0, 0, 0);
  const int64_t at = row * a.out_stride + output;
  if (a.f32) return *reinterpret_cast<const float4*>(static_cast<const float*>(a.out) + at);
  const uint2 pairs =
      *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(a.out) + at);
  return make_float4(__uint_as_float(pairs.x << 16),
                     __uint_as_float(pairs.x & 0xffff0000u),
                     __uint_as_float(pairs.y << 16),
                     __uint_as_float(pairs.y & 0xffff0000u));
}

__device__ __forceinline__ float4 Add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Adds bias and addend to the sums of four neighbouring outputs, and writes the results.
__device__ __forceinline__ void Store4(
    const SkinnyArguments& a, int32_t row, int32_t output, float4 sum, float4 addend) {
  if (a.bias != nullptr) {
    sum = Add(sum,
              make_float4(__bfloat162float(a.bias[output]),
                          __bfloat162float(a.bias[output + 1]),
                          __bfloat162float(a.bias[output + 2]),
                          __bfloat162float(a.bias[output + 3])));
  }
  sum = Add(sum, addend);
  const int64_t at = row * a.out_stride + output;
  if (a.f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(a.out) + at) = sum;
    return;
  }
  const __nv_bfloat162 low = __floats2bfloat162_rn(sum.x, sum.y);
  const __nv_bfloat162 high = __floats2bfloat162_rn(sum.z, sum.w);
  *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.out) + at) = make_uint2(
      *reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
}

__device__ __forceinline__ float4 LoadShared4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void StoreShared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

__device__ __forceinline__ float4 SiluMul(float4 gate, float4 up) {
  return make_float4(
      SiluMul(gate.x, up.x), SiluMul(gate.y, up.y), SiluMul(gate.z, up.z), SiluMul(gate.w, up.w));
}

// Multiplies the sums of a row of x with the weight's rows line … line + 3 by the scales of FP8
// operands, or the factors of a packed weight; for bf16, and without scales, returns `sum`.
template <class Number>
__device__ __forceinline__ float4
Scaled(const SkinnyArguments& a, int32_t row, int32_t line, float4 sum) {
  if constexpr (!std::is_same_v<Number, __nv_bfloat16>) {
    if (a.weight_scales == nullptr) return sum;
    const float of_row = kIsFp8<Number> ? a.x_scales[row] : 1;
    const float4 scales = *reinterpret_cast<const float4*>(a.weight_scales + line);
    sum = make_float4(sum.x * (of_row * scales.x),
                      sum.y * (of_row * scales.y),
                      sum.z * (of_row * scales.z),
                      sum.w * (of_row * scales.w));
  }
  return sum;
}

// Writes a tile from the complete accumulators of one warp group. Each warp transposes its 16
// outputs of a matrix in shared memory, so that it writes neighbouring outputs together.
template <class Number, int kGroup, int kMatrices, bool kPairs>
__device__ __forceinline__ void StoreTile(const SkinnyArguments& a,
                                          uint32_t staging,
                                          int32_t first_output,
                                          float (&accumulators)[kMatrices][kGroup / 2]) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t mine = staging + static_cast<uint32_t>(warp * kGroup * kSkinnyStagingBytes);
  const uint32_t to =
      mine + static_cast<uint32_t>(lane % 4 * 2 * kSkinnyStagingBytes + lane / 4 * 4);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    float gate_scales[2] = {1, 1};
    float up_scales[2] = {1, 1};
    if constexpr (kPairs && sizeof(Number) == 1) {
      const int32_t first = first_output + i * kWgmmaRows + warp * 16 + lane / 4;
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const int32_t line = min(first + eight * 8, a.outputs - 1);
        gate_scales[eight] = a.weight_scales[line];
        up_scales[eight] = a.weight_scales[a.outputs + line];
      }
    }
#pragma unroll
    for (int e = 0; e < kGroup / 2; ++e) {
      const int row = e / 4 * 8 + e % 2;
      float value = accumulators[i][e];
      if constexpr (kPairs) {
        float up = accumulators[i + kHalf][e];
        if constexpr (kIsFp8<Number>) {
          const float of_row = a.x_scales[min(row + lane % 4 * 2, a.rows - 1)];
          value *= of_row * gate_scales[e / 2 % 2];
          up *= of_row * up_scales[e / 2 % 2];
        }
        value = SiluMul(value, up);
      }
      StoreShared(to + static_cast<uint32_t>(row * kSkinnyStagingBytes + e / 2 % 2 * 32), value);
    }
    __syncwarp();
    const int32_t within = i * kWgmmaRows + warp * 16 + lane % 4 * 4;
    const int32_t output = first_output + within;
    if (within < a.plan.tile_outputs && output < a.outputs) {
      for (int32_t row = lane / 4; row < min(kGroup, a.rows); row += 8) {
        const uint32_t at = mine + static_cast<uint32_t>(row * kSkinnyStagingBytes + lane % 4 * 16);
        float4 sum = LoadShared4(at);
        if constexpr (!kPairs) sum = Scaled<Number>(a, row, output, sum);
        Store4(a, row, output, sum, LoadAddend(a, row, output));
      }
    }
    __syncwarp();
  }
}

// The layout of partial sums in shared memory, [warp group][half][row of x][output]: the bytes of a
// row, of a half (gate or up) and of a warp group.
struct SkinnyPartials {
  int32_t row_bytes;
  int32_t half_bytes;
  int32_t group_bytes;

  __device__ SkinnyPartials(const SkinnyPlan& plan, bool pairs)
      : row_bytes((plan.tile_outputs + 4) * 4),
        half_bytes(plan.row_group * row_bytes),
        group_bytes(pairs ? 2 * half_bytes : half_bytes) {}
};

// Writes a warp group's partial sums of a tile to shared memory: [half][row of x][output].
template <int kGroup, int kMatrices, bool kPairs>
__device__ __forceinline__ void StorePartialTile(
    const SkinnyPlan& plan, uint32_t to, const float (&accumulators)[kMatrices][kGroup / 2]) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const SkinnyPartials layout(plan, kPairs);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 % kWarpGroupWarps;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kMatrices; ++i) {
    const int32_t first = i % kHalf * kWgmmaRows + warp * 16 + lane / 4;
    const int32_t line =
        i / kHalf * layout.half_bytes + lane % 4 * 2 * layout.row_bytes + first * 4;
#pragma unroll
    for (int e = 0; e < kGroup / 2; ++e) {
      if (first + e / 2 % 2 * 8 >= plan.tile_outputs) continue;
      const int32_t at = line + (e / 4 * 8 + e % 2) * layout.row_bytes + e / 2 % 2 * 32;
      StoreShared(to + static_cast<uint32_t>(at), accumulators[i][e]);
    }
  }
}

// The outputs of a tile that this thread block finishes. The blocks of a cluster divide a tile's
// outputs in groups of four. An item is one such group in one row of x.
struct SkinnySlice {
  int32_t first;        // the block's first group of four
  int32_t count;        // groups of four of the block
  int32_t tile_output;  // first output of the tile

  __device__ SkinnySlice(const SkinnyPlan& plan, const SkinnyWork& work, int32_t tile)
      : tile_output(tile * plan.tile_outputs) {
    const int32_t fours = plan.tile_outputs / 4;
    const int32_t slice = CeilDiv(fours, plan.cluster);
    first = work.rank * slice;
    count = max(min(slice, fours - first), 0);
  }
  __device__ int32_t Row(int32_t item) const { return item / count; }
  __device__ int32_t Four(int32_t item) const { return first + item % count; }
  __device__ int32_t Output(int32_t item) const { return tile_output + Four(item) * 4; }
  __device__ bool Has(const SkinnyArguments& a, int32_t item) const {
    return item < a.rows * count && Output(item) < a.outputs;
  }
};

// Adds up the kParts partial sums of all thread blocks at `at`, in the order of blocks, then of
// parts. Loads from several blocks are issued together, as far as registers allow, because
// distributed shared memory has a high latency.
template <int kParts>
__device__ __forceinline__ float4 ReducePartials(const SkinnyPlan& plan,
                                                 uint32_t at,
                                                 int32_t group_bytes) {
  constexpr int kBatch = kParts == 4 ? 2 : kSkinnyMaxCluster;
  float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 1
  for (int32_t first = 0; first < plan.cluster; first += kBatch) {
    float4 parts[kBatch][kParts];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= plan.cluster) continue;
      const uint32_t there =
          plan.cluster == 1 ? at : MapToRank(at, static_cast<uint32_t>(first + i));
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint32_t from = there + static_cast<uint32_t>(part * group_bytes);
        parts[i][part] = plan.cluster == 1 ? LoadShared4(from) : LoadRemote4(from);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= plan.cluster) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part) total = Add(total, parts[i][part]);
    }
  }
  return total;
}

// The same where the number of parts, a power of two, is known only at run time.
__device__ __forceinline__ float4 ReducePartials(const SkinnyPlan& plan,
                                                 uint32_t at,
                                                 int32_t group_bytes,
                                                 int32_t parts) {
  constexpr int kBatch = 4;
  const int32_t shift = 31 - __clz(parts);
  const int32_t count = plan.cluster << shift;
  float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 1
  for (int32_t first = 0; first < count; first += kBatch) {
    float4 sums[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= count) continue;
      const int32_t part = (first + i) & (parts - 1);
      const uint32_t from = at + static_cast<uint32_t>(part * group_bytes);
      const auto rank = static_cast<uint32_t>((first + i) >> shift);
      sums[i] = plan.cluster == 1 ? LoadShared4(from) : LoadRemote4(MapToRank(from, rank));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < count) total = Add(total, sums[i]);
    }
  }
  return total;
}

// Finishes this thread block's slice of a tile with `threads` threads. reduce(at, group_bytes) adds
// up all partial sums at `at`. `addend` belongs to the thread's first item.
template <class Number, bool kPairs, class Reduce>
__device__ __forceinline__ void StoreSlice(const SkinnyArguments& a,
                                           const SkinnySlice& slice,
                                           uint32_t accumulators,
                                           float4 addend,
                                           int32_t threads,
                                           const Reduce& reduce) {
  const SkinnyPartials layout(a.plan, kPairs);
  const auto first = static_cast<int32_t>(threadIdx.x);
  for (int32_t item = first; item < a.rows * slice.count; item += threads) {
    if (!slice.Has(a, item)) continue;
    const int32_t row = slice.Row(item);
    const int32_t output = slice.Output(item);
    const uint32_t at =
        accumulators + static_cast<uint32_t>(row * layout.row_bytes + slice.Four(item) * 16);
    if (item != first) addend = LoadAddend(a, row, output);
    float4 total = Scaled<Number>(a, row, output, reduce(at, layout.group_bytes));
    if constexpr (kPairs) {
      const auto half = static_cast<uint32_t>(layout.half_bytes);
      const float4 up = reduce(at + half, layout.group_bytes);
      total = SiluMul(total, Scaled<Number>(a, row, a.outputs + output, up));
    }
    Store4(a, row, output, total, addend);
  }
}

#endif

}  // namespace baton::cuda
