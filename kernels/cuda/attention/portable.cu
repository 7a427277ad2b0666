#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/latent_rows.h"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/lse_accumulator.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// Attention for any shape. A warp computes one query head of one row, 32 positions at a time. The
// lanes are positions for the scores and dimensions for the values. No result depends on other
// rows.
namespace baton::cuda {
namespace {

__device__ __forceinline__ float ToFloat(float x) {
  return x;
}
__device__ __forceinline__ float ToFloat(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

__device__ __forceinline__ float ToFloat(__nv_fp8_e4m3 x) {
  return static_cast<float>(x);
}

// 16 bytes of numbers.
template <class Kv>
struct alignas(16) Packed {
  static constexpr int kCount = 16 / sizeof(Kv);
  Kv numbers[kCount];
};
template <class Kv>
struct alignas(2 * sizeof(Kv)) Pair {
  Kv x, y;
};

struct Arguments {
  const RowTile* list;
  const int32_t* tables;
  const std::byte* keys;  // of the layer
  int64_t value_offset;   // from a key to its value; these strides are in bytes
  int64_t block_stride;
  int64_t head_stride;
  int block_tokens;
  int head_dim;
  int value_dim;
  int q_heads;
  int group;
  float scale;             // includes the base-2 logarithm of e, as does `cap`
  float cap;               // 0: none
  const float* kv_scales;  // RopeArgs::kv_scales
  const float* sinks;      // AttentionArgs::sinks, or null
  const __nv_bfloat16* q;
  int64_t q_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
  PartialResults partial;
};

// Positions [begin, end), at most kPortableSplit, of one row and head.
template <class Kv, int kPairs>
class Split {
 public:
  __device__ __forceinline__ Split(const Arguments& a, const float* q, const int32_t* table)
      : a_(a), q_(q), table_(table), lane_(static_cast<int>(threadIdx.x)) {}

  // Returns the LSE (base-2 logarithm) and leaves normalised values in `values`.
  __device__ __forceinline__ float Run(int begin,
                                       int end,
                                       const std::byte* head_keys,
                                       float2 (&values)[kPairs]) {
    float largest = -INFINITY;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) values[i] = make_float2(0, 0);
    for (int first = begin; first < end; first += 32) {
      const int position = first + lane_;
      const bool seen = position < end;
      const std::byte* key = nullptr;
      float score = -INFINITY;
      if (seen) {
        const int block = table_[position / a_.block_tokens];
        key = head_keys + block * a_.block_stride +
              static_cast<int64_t>(position % a_.block_tokens) * a_.head_dim * sizeof(Kv);
        score = Score(reinterpret_cast<const Kv*>(key));
        if (a_.cap > 0) score = Capped(score, a_.cap);
      }
      const float next = fmaxf(largest, LargestOverWarp(score));
      const float keep = exp2f(largest - next);
      const float weight = exp2f(score - next);
      largest = next;
      sum = __fmaf_rn(sum, keep, WarpSum(weight));
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        values[i].x = __fmul_rn(values[i].x, keep);
        values[i].y = __fmul_rn(values[i].y, keep);
      }
      AddValues(key, weight, min(32, end - first), values);
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      values[i].x = __fdiv_rn(values[i].x, sum);
      values[i].y = __fdiv_rn(values[i].y, sum);
    }
    return largest + log2f(sum);
  }

 private:
  static __device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, step));
    return x;
  }

  __device__ __forceinline__ float Score(const Kv* key) const {
    constexpr int kCount = Packed<Kv>::kCount;
    float score = 0;
    for (int d = 0; d < a_.head_dim; d += kCount) {
      const auto packed = *reinterpret_cast<const Packed<Kv>*>(key + d);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        score = __fmaf_rn(q_[d + i], ToFloat(packed.numbers[i]), score);
      }
    }
    return score;
  }

  __device__ __forceinline__ void AddValues(const std::byte* key,
                                            float weight,
                                            int count,
                                            float2 (&values)[kPairs]) const {
    const auto address = reinterpret_cast<uint64_t>(key + a_.value_offset);
#pragma unroll 4
    for (int t = 0; t < count; ++t) {
      const float w = __shfl_sync(~0u, weight, t);
      const auto* value = reinterpret_cast<const Kv*>(__shfl_sync(~0u, address, t));
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int d = 64 * i + 2 * lane_;
        if (d < a_.value_dim) {
          const auto pair = *reinterpret_cast<const Pair<Kv>*>(value + d);
          values[i].x = __fmaf_rn(w, ToFloat(pair.x), values[i].x);
          values[i].y = __fmaf_rn(w, ToFloat(pair.y), values[i].y);
        }
      }
    }
  }

  const Arguments& a_;
  const float* q_;
  const int32_t* table_;
  const int lane_;
};

// Grid [work tile][kv head][slice of the group], one warp per query head.
template <class Kv, int kPairs>
__global__ void PortableAttention(const __grid_constant__ Arguments a) {
  extern __shared__ float queries[];  // [warp][dim]
  const RowTile work_tile = a.list[blockIdx.x];
  WaitForPredecessor();
  ReleaseSuccessor();
  const int lane = static_cast<int>(threadIdx.x);
  const int in_group = static_cast<int>(blockIdx.z * blockDim.y + threadIdx.y);
  if (work_tile.row < 0 || in_group >= a.group) return;
  const int head = static_cast<int>(blockIdx.y) * a.group + in_group;
  float* q = queries + threadIdx.y * a.head_dim;
  const __nv_bfloat16* query = a.q + work_tile.row * a.q_stride + int64_t{head} * a.head_dim;
  const float key_scale = a.kv_scales == nullptr ? 1.0f : a.kv_scales[blockIdx.y];
  const float value_scale = a.kv_scales == nullptr ? 1.0f : a.kv_scales[gridDim.y + blockIdx.y];
  for (int d = lane; d < a.head_dim; d += 32) {
    q[d] = __bfloat162float(query[d]) * a.scale * key_scale;
  }
  __syncwarp();

  const std::byte* head_keys = a.keys + blockIdx.y * a.head_stride;
  Split<Kv, kPairs> split(a, q, a.tables + work_tile.table_start);
  LseAccumulator<kPairs> sum;
  for (int begin = work_tile.begin; begin < work_tile.end;) {
    const int end = min((begin / kPortableSplit + 1) * kPortableSplit, work_tile.end);
    float2 values[kPairs];
    const float lse = split.Run(begin, end, head_keys, values);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      values[i].x = __fmul_rn(values[i].x, value_scale);
      values[i].y = __fmul_rn(values[i].y, value_scale);
    }
    if (work_tile.partial >= 0) {
      const int64_t at = int64_t{work_tile.partial} * a.q_heads + head;
      if (lane == 0) a.partial.lse[at] = lse;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const int d = 64 * i + 2 * lane;
        if (d < a.value_dim) {
          *reinterpret_cast<float2*>(a.partial.values + at * a.value_dim + d) = values[i];
        }
      }
    }
    sum.Add(values, lse);
    begin = end;
  }
  if (work_tile.partial < 0) {
    if (a.sinks != nullptr) sum.AddSink(a.sinks[head] * kLog2E);
    __nv_bfloat16* const out = a.out + work_tile.row * a.out_stride + int64_t{head} * a.value_dim;
    sum.Write(out, a.value_dim, lane);
  }
}

template <class Kv, int kPairs>
cudaError_t Launch(const PortableWork& work, const AttentionLaunch& call, int32_t value_dim) {
  const AttentionShape& shape = call.shape;
  const KvView& kv = call.kv;
  Arguments a = {};
  a.list = work.list;
  a.tables = work.tables;
  a.keys = kv.base + call.layer * kv.layer_stride;
  a.value_offset = kv.value_offset;
  a.block_stride = kv.block_stride;
  a.head_stride = kv.head_stride;
  a.block_tokens = kv.block_tokens;
  a.head_dim = shape.head_dim;
  a.value_dim = value_dim;
  a.q_heads = shape.q_heads;
  a.group = shape.group();
  a.scale = shape.scale * kLog2E;
  a.cap = shape.cap * kLog2E;
  a.kv_scales = call.kv_scales;
  a.sinks = call.sinks;
  a.q = reinterpret_cast<const __nv_bfloat16*>(call.qkv.data);
  a.q_stride = call.qkv.stride;
  a.out = reinterpret_cast<__nv_bfloat16*>(call.out.data);
  a.out_stride = call.out.stride;
  a.partial = work.combine.partial;
  const int warps = std::min(shape.group(), 4);
  const dim3 grid(work.work_tiles, shape.kv_heads, CeilDiv(shape.group(), warps));
  const dim3 block(32, warps);
  const size_t shared = static_cast<size_t>(warps) * shape.head_dim * sizeof(float);
  PortableAttention<Kv, kPairs><<<grid, block, shared, call.stream>>>(a);
  return cudaGetLastError();
}

template <class Kv>
cudaError_t LaunchFor(const PortableWork& work, const AttentionLaunch& call, int32_t value_dim) {
  if (value_dim > kMaxHeadValues) return Launch<Kv, kPairsOfLatents>(work, call, value_dim);
  switch (PairsPerLane(value_dim)) {
    case 1:
      return Launch<Kv, 1>(work, call, value_dim);
    case 2:
      return Launch<Kv, 2>(work, call, value_dim);
    default:
      return Launch<Kv, 4>(work, call, value_dim);
  }
}

cudaError_t LaunchForType(const PortableWork& work,
                          const AttentionLaunch& call,
                          int32_t value_dim) {
  switch (call.kv.dtype) {
    case DType::kF32:
      return LaunchFor<float>(work, call, value_dim);
    case DType::kF16:
      return LaunchFor<__half>(work, call, value_dim);
    case DType::kBF16:
      return LaunchFor<__nv_bfloat16>(work, call, value_dim);
    case DType::kFp8:
      return LaunchFor<__nv_fp8_e4m3>(work, call, value_dim);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace

cudaError_t LaunchPortableAttention(const PortableWork& work, const AttentionLaunch& call) {
  return LaunchForType(work, call, call.shape.head_dim);
}

cudaError_t LaunchPortableLatents(const PortableWork& work,
                                  const AttentionLaunch& call,
                                  int32_t rank) {
  return LaunchForType(work, call, rank);
}

}  // namespace baton::cuda
