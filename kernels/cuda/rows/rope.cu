#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/rope.h"

namespace baton::cuda {
namespace {

constexpr int kWarp = 32;

// The kernels' arguments. `stride` is in elements of qkv, the strides of KV memory are in bytes.
struct Arguments {
  __nv_bfloat16* qkv;
  int64_t stride;
  int q_heads;
  int kv_heads;
  int dim;
  int pairs;
  bool adjacent;
  OutputScales scales;
  const float* q_norm;
  const float* k_norm;
  float epsilon;
  bool norm_after;  // rope; AnyRopeKernel only
  const float* kv_scales;
  float query_slope;  // AnyRopeKernel only, as query_step
  int query_step;
  const float2* angles;
  const int32_t* positions;
  const int32_t* row_blocks;
  std::byte* layer;  // of block 0
  int64_t block_stride;
  int64_t value_offset;
  int64_t head_stride;
  int block_tokens;
};

__global__ void AnglesKernel(const float* frequencies,
                             int pairs,
                             const int32_t* positions,
                             float magnitude,
                             float2* angles) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const float position = static_cast<float>(positions[blockIdx.x]);
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
    float sine;
    float cosine;
    sincosf(position * frequencies[i], &sine, &cosine);
    angles[blockIdx.x * static_cast<int64_t>(pairs) + i] = {cosine * magnitude, sine * magnitude};
  }
}

// The place of a row's token in the arena. It is part of the step's data, which is on the device
// before the first kernel of the step, so that it may be read before WaitForPredecessor.
struct Place {
  int block;  // negative: the row's K and V are not stored
  int token;  // within the block

  __device__ __forceinline__ Place(const Arguments& a, int row)
      : block(a.row_blocks[row]), token(a.positions[row] % a.block_tokens) {}

  // Element 0 of the head's K (part 0) or V (part 1).
  template <class Kv>
  __device__ __forceinline__ Kv* Head(const Arguments& a, int part, int head) const {
    std::byte* at = a.layer + block * a.block_stride + part * a.value_offset + head * a.head_stride;
    return reinterpret_cast<Kv*>(at) + static_cast<int64_t>(token) * a.dim;
  }
};

// The factor by which the numbers of a KV head are multiplied before they are stored: 1 / its
// scale.
__device__ __forceinline__ float KvFactor(const Arguments& a, int part, int head) {
  return a.kv_scales == nullptr ? 1.0f : 1.0f / a.kv_scales[part * a.kv_heads + head];
}

// As QueryScaling says.
__device__ __forceinline__ float QueryFactor(const Arguments& a, int row) {
  if (a.query_slope == 0) return 1.0f;
  const int steps = (a.positions[row] + 1) / a.query_step;
  return 1.0f + a.query_slope * logf(1.0f + static_cast<float>(steps));
}

template <class Kv>
__device__ __forceinline__ void StoreKv(Kv* to, __nv_bfloat16 value, float factor) {
  *to = static_cast<Kv>(__bfloat162float(value) * factor);
}

__device__ __forceinline__ void StoreKv8(__nv_bfloat16* to, const Packed8& values, float) {
  Store8(to, values);
}
__device__ __forceinline__ void StoreKv8(__nv_fp8_e4m3* to, const Packed8& values, float factor) {
  float numbers[8];
  Unpack(values, numbers);
  *reinterpret_cast<uint2*>(to) = PackFp8(numbers, factor);
}

// For any head size and KV type. One thread block for each row; one warp computes a head.
template <class Kv>
__global__ void AnyRopeKernel(const Arguments a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int row = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const Place place(a, row);
  const bool kept = place.block >= 0;
  const float query_factor = QueryFactor(a, row);
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < a.q_heads + 2 * a.kv_heads;
       head += warps) {
    __nv_bfloat16* x = a.qkv + row * a.stride + static_cast<int64_t>(head) * a.dim;
    const int kv_head = (head - a.q_heads) % a.kv_heads;
    if (a.scales.rows != nullptr) {
      for (int i = lane; i < a.dim; i += kWarp) {
        const float scale = a.scales.rows[row] * a.scales.cols[head * a.dim + i];
        x[i] = __float2bfloat16(__bfloat162float(x[i]) * scale);
      }
      __syncwarp();
    }
    if (head >= a.q_heads + a.kv_heads) {
      if (!kept) continue;
      Kv* v = place.Head<Kv>(a, 1, kv_head);
      const float factor = KvFactor(a, 1, kv_head);
      for (int i = lane; i < a.dim; i += kWarp) StoreKv(v + i, x[i], factor);
      continue;
    }
    const float* norm = head < a.q_heads ? a.q_norm : a.k_norm;
    const auto angle_of = [&](int i) { return a.angles[static_cast<int64_t>(row) * a.pairs + i]; };
    const auto first_of = [&](int i) { return a.adjacent ? 2 * i : i; };
    const auto second_of = [&](int i) { return a.adjacent ? 2 * i + 1 : i + a.pairs; };
    float scale = 1.0f;
    if (norm != nullptr) {
      const auto square = [&](int i) {
        const float value = __bfloat162float(x[i]);
        return value * value;
      };
      float squares = 0;
      // A rotation multiplies the length of a pair by that of its angle.
      for (int i = lane; i < a.pairs; i += kWarp) {
        const float2 angle = a.norm_after ? angle_of(i) : make_float2(1, 0);
        const float length = angle.x * angle.x + angle.y * angle.y;
        squares += (square(first_of(i)) + square(second_of(i))) * length;
      }
      for (int i = 2 * a.pairs + lane; i < a.dim; i += kWarp) squares += square(i);
      squares = SumOverWarp(squares);
      scale = rsqrtf(squares / static_cast<float>(a.dim) + a.epsilon);
    }
    const auto times_norm = [&](int i, float value) {
      return norm == nullptr ? value : value * scale * norm[i];
    };
    const auto before_rope = [&](int i) {
      const float value = __bfloat162float(x[i]);
      return a.norm_after ? value : times_norm(i, value);
    };
    Kv* k = head >= a.q_heads && kept ? place.Head<Kv>(a, 0, kv_head) : nullptr;
    const float factor = k != nullptr ? KvFactor(a, 0, kv_head) : 1.0f;
    const float times = head < a.q_heads ? query_factor : 1.0f;
    const auto put = [&](int i, float value) {
      x[i] = __float2bfloat16((a.norm_after ? times_norm(i, value) : value) * times);
      if (k != nullptr) StoreKv(k + i, x[i], factor);
    };
    for (int i = lane; i < a.pairs; i += kWarp) {
      const float2 angle = angle_of(i);
      const int first = first_of(i);
      const int second = second_of(i);
      const float low = before_rope(first);
      const float high = before_rope(second);
      put(first, low * angle.x - high * angle.y);
      put(second, low * angle.y + high * angle.x);
    }
    for (int i = 2 * a.pairs + lane; i < a.dim; i += kWarp) put(i, before_rope(i));
  }
}

// The output scales of a thread's two groups of 8 numbers of a head.
struct Scales {
  float lows[8];
  float highs[8];

  __device__ __forceinline__ void Load(const float* cols, int second) {
    Read8(cols, lows);
    Read8(cols + second, highs);
  }
  __device__ __forceinline__ void Apply(float of_row, float (&low)[8], float (&high)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      low[i] *= of_row * lows[i];
      high[i] *= of_row * highs[i];
    }
  }
};

// RMS norm of a head. Each of kThreads threads holds 16 numbers of the head.
template <int kThreads>
__device__ __forceinline__ void Normalize(
    const float* norm, int second, float epsilon, float (&lows)[8], float (&highs)[8]) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) squares += lows[i] * lows[i] + highs[i] * highs[i];
#pragma unroll
  for (int offset = kThreads / 2; offset > 0; offset /= 2) {
    squares += __shfl_xor_sync(__activemask(), squares, offset, kThreads);
  }
  const float scale = rsqrtf(squares / (kThreads * 16) + epsilon);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    lows[i] *= scale * norm[i];
    highs[i] *= scale * norm[second + i];
  }
}

// Rotates eight pairs: each is two neighbours, or a number of `lows` and one of `highs`.
template <bool kAdjacent>
__device__ __forceinline__ void Turn(const float2* angles, float (&lows)[8], float (&highs)[8]) {
  if constexpr (kAdjacent) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 one = angles[i];
      const float2 two = angles[i + 4];
      const float a0 = lows[2 * i];
      const float b0 = highs[2 * i];
      lows[2 * i] = a0 * one.x - lows[2 * i + 1] * one.y;
      lows[2 * i + 1] = a0 * one.y + lows[2 * i + 1] * one.x;
      highs[2 * i] = b0 * two.x - highs[2 * i + 1] * two.y;
      highs[2 * i + 1] = b0 * two.y + highs[2 * i + 1] * two.x;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 angle = angles[i];
      const float a0 = lows[i];
      lows[i] = a0 * angle.x - highs[i] * angle.y;
      highs[i] = a0 * angle.y + highs[i] * angle.x;
    }
  }
}

enum class HeadNorm { kNone, kBeforeRope, kAfterRope };

// For heads of kDim dimensions that are all rotated, and KV in bf16 or FP8. A thread holds 16
// numbers of one head; a thread block computes some of a row's heads.
template <int kDim, bool kAdjacent, HeadNorm kNorm, class Kv>
__global__ void RopeKernel(const Arguments a) {
  constexpr int kThreads = kDim / 16;  // per head
  ReleaseSuccessor();
  const int row = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) / kThreads;
  if (head >= a.q_heads + 2 * a.kv_heads) return;
  const int share = static_cast<int>(threadIdx.x) % kThreads;
  const int first = kAdjacent ? share * 16 : share * 8;
  constexpr int kSecond = kAdjacent ? 8 : kDim / 2;  // offset of the thread's second group
  const Place place(a, row);
  const bool scaled = a.scales.rows != nullptr;
  Scales scales;
  if (scaled) scales.Load(a.scales.cols + head * kDim + first, kSecond);
  WaitForPredecessor();
  __nv_bfloat16* x = a.qkv + row * a.stride + static_cast<int64_t>(head) * kDim + first;
  Packed8 low = Load8(x);
  Packed8 high = Load8(x + kSecond);
  const bool is_v = head >= a.q_heads + a.kv_heads;
  if (!is_v || scaled) {
    float lows[8];
    float highs[8];
    Unpack(low, lows);
    Unpack(high, highs);
    if (scaled) scales.Apply(a.scales.rows[row], lows, highs);
    if (!is_v) {
      const auto normalize = [&] {
        const float* norm = head < a.q_heads ? a.q_norm : a.k_norm;
        Normalize<kThreads>(norm + first, kSecond, a.epsilon, lows, highs);
      };
      if constexpr (kNorm == HeadNorm::kBeforeRope) normalize();
      const float2* angles = a.angles + static_cast<int64_t>(row) * (kDim / 2) + share * 8;
      Turn<kAdjacent>(angles, lows, highs);
      if constexpr (kNorm == HeadNorm::kAfterRope) normalize();
    }
    low = Pack(lows);
    high = Pack(highs);
    Store8(x, low);
    Store8(x + kSecond, high);
  }
  if (head < a.q_heads || place.block < 0) return;
  const int kv_head = (head - a.q_heads) % a.kv_heads;
  const int part = is_v ? 1 : 0;
  const float factor = KvFactor(a, part, kv_head);
  Kv* to = place.Head<Kv>(a, part, kv_head) + first;
  StoreKv8(to, low, factor);
  StoreKv8(to + kSecond, high, factor);
}

using Kernel = void (*)(Arguments);

template <int kDim, bool kAdjacent, class Kv>
Kernel WholeKernel(HeadNorm norm) {
  switch (norm) {
    case HeadNorm::kNone:
      return RopeKernel<kDim, kAdjacent, HeadNorm::kNone, Kv>;
    case HeadNorm::kBeforeRope:
      return RopeKernel<kDim, kAdjacent, HeadNorm::kBeforeRope, Kv>;
    case HeadNorm::kAfterRope:
      break;
  }
  return RopeKernel<kDim, kAdjacent, HeadNorm::kAfterRope, Kv>;
}

template <int kDim, class Kv>
Kernel WholeKernel(bool adjacent, HeadNorm norm) {
  return adjacent ? WholeKernel<kDim, true, Kv>(norm) : WholeKernel<kDim, false, Kv>(norm);
}

template <class Kv>
Kernel WholeKernel(int head_dim, bool adjacent, HeadNorm norm) {
  switch (head_dim) {
    case 64:
      return WholeKernel<64, Kv>(adjacent, norm);
    case 128:
      return WholeKernel<128, Kv>(adjacent, norm);
    case 256:
      return WholeKernel<256, Kv>(adjacent, norm);
    default:
      return nullptr;
  }
}

// The RopeKernel for this launch, or null when AnyRopeKernel must be used.
Kernel WholeKernelFor(const RopeLaunch& launch, const KvView& kv) {
  const bool both = (launch.q_norm == nullptr) == (launch.k_norm == nullptr);
  const bool fp8 = kv.dtype == DType::kFp8;
  if (!(fp8 || kv.dtype == DType::kBF16) || !both || launch.pairs * 2 != launch.heads.head_dim ||
      launch.qkv.stride % 8 != 0 || launch.query_slope != 0) {
    return nullptr;
  }
  const bool adjacent = launch.pairing == RopePairing::kAdjacent;
  const HeadNorm norm = launch.q_norm == nullptr ? HeadNorm::kNone
                        : launch.norm_after_rope ? HeadNorm::kAfterRope
                                                 : HeadNorm::kBeforeRope;
  return fp8 ? WholeKernel<__nv_fp8_e4m3>(launch.heads.head_dim, adjacent, norm)
             : WholeKernel<__nv_bfloat16>(launch.heads.head_dim, adjacent, norm);
}

Kernel AnyKernelFor(DType dtype) {
  if (dtype == DType::kF32) return AnyRopeKernel<float>;
  if (dtype == DType::kFp8) return AnyRopeKernel<__nv_fp8_e4m3>;
  return dtype == DType::kF16 ? AnyRopeKernel<__half> : AnyRopeKernel<__nv_bfloat16>;
}

}  // namespace

cudaError_t LaunchAngles(const float* inverse_frequencies,
                         int32_t pairs,
                         const int32_t* positions,
                         int32_t rows,
                         float magnitude,
                         float2* angles,
                         cudaStream_t stream) {
  if (pairs == 0) return cudaSuccess;
  return LaunchOverlapped(AnglesKernel,
                          dim3(static_cast<unsigned>(rows)),
                          dim3(64),
                          0,
                          stream,
                          inverse_frequencies,
                          pairs,
                          positions,
                          magnitude,
                          angles);
}

cudaError_t LaunchRope(const RopeLaunch& launch, const KvView& kv, cudaStream_t stream) {
  const HeadShape& shape = launch.heads;
  const Arguments arguments = {
      .qkv = reinterpret_cast<__nv_bfloat16*>(launch.qkv.data),
      .stride = launch.qkv.stride,
      .q_heads = shape.q_heads,
      .kv_heads = shape.kv_heads,
      .dim = shape.head_dim,
      .pairs = launch.pairs,
      .adjacent = launch.pairing == RopePairing::kAdjacent,
      .scales = launch.scales,
      .q_norm = launch.q_norm,
      .k_norm = launch.k_norm,
      .epsilon = launch.norm_epsilon,
      .norm_after = launch.norm_after_rope,
      .kv_scales = launch.kv_scales,
      .query_slope = launch.query_slope,
      .query_step = launch.query_step,
      .angles = launch.angles,
      .positions = launch.positions,
      .row_blocks = launch.row_blocks,
      .layer = kv.base + launch.layer * kv.layer_stride,
      .block_stride = kv.block_stride,
      .value_offset = kv.value_offset,
      .head_stride = kv.head_stride,
      .block_tokens = kv.block_tokens,
  };
  const auto rows = static_cast<unsigned>(launch.qkv.rows);
  const int heads = shape.q_heads + 2 * shape.kv_heads;
  if (const Kernel whole = WholeKernelFor(launch, kv)) {
    constexpr int kThreads = 128;
    const int wanted = heads * (shape.head_dim / 16);
    const auto parts = static_cast<unsigned>(CeilDiv(wanted, kThreads));
    return LaunchOverlapped(whole, dim3(rows, parts), dim3(kThreads), 0, stream, arguments);
  }
  return LaunchOverlapped(AnyKernelFor(kv.dtype), dim3(rows), dim3(256), 0, stream, arguments);
}

}  // namespace baton::cuda
