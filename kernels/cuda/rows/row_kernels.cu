#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/expert_results.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/peer_sum.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/quantize.cuh"
#include "kernels/cuda/rows/row_kernels.h"
#include "kernels/cuda/rows/silu.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarp = 32;

// The sum and the largest value of a row.
struct Totals {
  float sum;
  float largest;
};

// Reduces both over the thread block, with one synchronisation.
template <bool kLargest>
__device__ __forceinline__ Totals OfBlock(Totals mine) {
  return ReduceOverBlock(mine, Totals{0, 0}, [](Totals totals) {
    totals.sum = SumOverWarp(totals.sum);
    if (kLargest) totals.largest = LargestOverWarp(totals.largest);
    return totals;
  });
}

__global__ void EmbedKernel(const __nv_bfloat16* table,
                            int64_t vocabulary,
                            int32_t first_token,
                            const int32_t* tokens,
                            const int32_t* chosen,
                            float* out,
                            int64_t stride,
                            int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t given = tokens[blockIdx.x];
  const int32_t token = (given < 0 ? chosen[-1 - given] : given) - first_token;
  const bool known = token >= 0 && token < vocabulary;
  const __nv_bfloat16* from = table + (known ? token : 0) * static_cast<int64_t>(cols);
  float* to = out + blockIdx.x * stride;
  if (cols % 8 == 0) {
    for (int i = static_cast<int>(threadIdx.x) * 8; i < cols;
         i += static_cast<int>(blockDim.x) * 8) {
      float values[8] = {-0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f};
      if (known) Read8(from + i, values);
      Write8(to + i, values);
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(blockDim.x)) {
    to[i] = known ? __bfloat162float(from[i]) : -0.0f;
  }
}

// The arguments of the norm's kernels.
struct NormArguments {
  float* residual;
  int64_t residual_stride;
  const __nv_bfloat16* delta;
  ExpertResults expert_results;
  int64_t delta_stride;
  int32_t delta_parts;
  int64_t delta_part;  // numbers from one part to the next
  PeerParts peers;
  PeerTargets to;
  OutputScales delta_scales;
  const float* weight;
  float epsilon;
  __nv_bfloat16* out;
  int64_t out_stride;
  uint8_t* fp8_out;  // [rows][cols], instead of `out`
  float* scales;
  int cols;
};

// What the kernel adds to the residual.
enum class Delta { kNone, kOne, kParts, kPeer, kPeers, kExperts };

// Eight numbers of a row of delta. A sum is rounded as a separate op would store it.
template <Delta kDelta>
__device__ __forceinline__ void ReadDelta(const NormArguments& a, int at, float (&to)[8]) {
  if constexpr (kDelta == Delta::kExperts) {
    SumOfResults(a.expert_results, blockIdx.x, at, to);
    RoundToBf16(to);
    return;
  }
  const __nv_bfloat16* from = a.delta + blockIdx.x * a.delta_stride + at;
  constexpr int kPeers = kDelta == Delta::kPeer ? 1 : kMaxPeerRanks - 1;
  if constexpr (kDelta == Delta::kPeer || kDelta == Delta::kPeers) {
    const uint4 own = *reinterpret_cast<const uint4*>(from);
    SumOverRanks<__nv_bfloat16, kPeers>(a.peers, own, (blockIdx.x * a.delta_stride + at) / 8, to);
    RoundToBf16(to);
    return;
  }
  if constexpr (kDelta == Delta::kParts) {
    TreeSum<8> sum;
    for (int32_t part = 0; part < a.delta_parts; ++part) {
      sum.Begin(part);
      Read8(from + part * a.delta_part, sum.leaf());
    }
    sum.Total(to);
    RoundToBf16(to);
    return;
  }
  Read8(from, to);
}

// Pushes this rank's part of the row. A row waits for no other row of this rank, so thread blocks
// that start late delay nobody for ever.
template <int kVectors>
__device__ __forceinline__ void PushRow(const NormArguments& a) {
  const auto* const part = reinterpret_cast<const uint4*>(a.delta);
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    const int64_t index = (blockIdx.x * a.delta_stride + at) / 8;
    const uint4 value = Pushed(part[index]);
    for (int32_t peer = 0; peer + 1 < a.peers.ranks; ++peer) {
      StoreVolatile(a.to[static_cast<size_t>(peer)] + index, value);
    }
  }
}

// One thread block for each row. A thread holds kVectors vectors of 8 numbers in registers, so that
// the row is read once.
template <int kVectors, Delta kDelta, bool kQuantize>
__global__ void NormKernel(const NormArguments a) {
  ReleaseSuccessor();
  // Weights are loaded before the wait, so that they have arrived when the sum is computed.
  const bool scaled = kDelta == Delta::kOne && a.delta_scales.rows != nullptr;
  float weights[kVectors][8] = {};
  float delta_scales[kVectors][8];
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    Read8(a.weight + at, weights[vector]);
    if (scaled) Read8(a.delta_scales.cols + at, delta_scales[vector]);
  }
  WaitForPredecessor();
  if constexpr (kDelta == Delta::kPeer || kDelta == Delta::kPeers) PushRow<kVectors>(a);
  float* x = a.residual + blockIdx.x * a.residual_stride;
  float values[kVectors][8] = {};
  float squares = 0;
  const float row_scale = scaled ? a.delta_scales.rows[blockIdx.x] : 1.0f;
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
    Read8(x + at, values[vector]);
    if (kDelta != Delta::kNone) {
      float more[8];
      ReadDelta<kDelta>(a, at, more);
      if (scaled) {
#pragma unroll
        for (int i = 0; i < 8; ++i) more[i] *= row_scale * delta_scales[vector][i];
        RoundToBf16(more);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) values[vector][i] += more[i];
      Write8(x + at, values[vector]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(values[vector][i], values[vector][i], squares);
  }
  float largest = 0;
  if (kQuantize) {
#pragma unroll
    for (int vector = 0; vector < kVectors; ++vector) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        largest = fmaxf(largest, fabsf(values[vector][i] * weights[vector][i]));
      }
    }
  }
  const Totals totals = OfBlock<kQuantize>({squares, largest});
  const float scale = rsqrtf(totals.sum / static_cast<float>(a.cols) + a.epsilon);
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= a.cols) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[vector][i] *= scale * weights[vector][i];
    if (!kQuantize) Write8(a.out + blockIdx.x * a.out_stride + at, values[vector]);
  }
  if (kQuantize) {
    uint8_t* const out = a.fp8_out + blockIdx.x * int64_t{a.cols};
    QuantizeRow(values, totals.largest * scale, a.cols, out, a.scales + blockIdx.x);
  }
}

// For rows of any length; no FP8 output.
__global__ void AnyNormKernel(const NormArguments a) {
  ReleaseSuccessor();
  WaitForPredecessor();
  float* x = a.residual + blockIdx.x * a.residual_stride;
  const OutputScales& scales = a.delta_scales;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < a.cols; i += static_cast<int>(blockDim.x)) {
    if (a.delta != nullptr) {
      const __nv_bfloat16* delta = a.delta + blockIdx.x * a.delta_stride + i;
      TreeSum<1> sum;
      for (int32_t part = 0; part < a.delta_parts; ++part) {
        sum.Begin(part);
        sum.leaf()[0] = __bfloat162float(delta[part * a.delta_part]);
      }
      float total[1];
      sum.Total(total);
      float more = __bfloat162float(__float2bfloat16(total[0]));
      if (scales.rows != nullptr) {
        more =
            __bfloat162float(__float2bfloat16(more * (scales.rows[blockIdx.x] * scales.cols[i])));
      }
      x[i] += more;
    }
    squares = fmaf(x[i], x[i], squares);
  }
  const float sum = OfBlock<false>({squares, 0}).sum;
  const float scale = rsqrtf(sum / static_cast<float>(a.cols) + a.epsilon);
  for (int i = static_cast<int>(threadIdx.x); i < a.cols; i += static_cast<int>(blockDim.x)) {
    a.out[blockIdx.x * a.out_stride + i] = __float2bfloat16(x[i] * scale * a.weight[i]);
  }
}

__global__ void SiluMulKernel(const __nv_bfloat16* gate_up,
                              int64_t stride,
                              __nv_bfloat16* out,
                              int64_t out_stride,
                              int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.y;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  const __nv_bfloat16* gates = gate_up + row * stride;
  if (at >= cols) return;
  if (cols % 8 == 0) {
    float gate[8];
    float up[8];
    Read8(gates + at, gate);
    Read8(gates + cols + at, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) gate[i] = SiluMul(gate[i], up[i]);
    Write8(out + row * out_stride + at, gate);
    return;
  }
  for (int i = at; i < min(at + 8, cols); ++i) {
    out[row * out_stride + i] =
        __float2bfloat16(SiluMul(__bfloat162float(gates[i]), __bfloat162float(gates[cols + i])));
  }
}

__global__ void RoundKernel(
    const float* x, int64_t stride, __nv_bfloat16* out, int64_t out_stride, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.y;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (at >= cols) return;
  float values[8];
  Read8(x + row * stride + at, values);
  Write8(out + row * out_stride + at, values);
}

// Copies rows of `units` Units. Strides are in Units.
template <class Unit>
__global__ void GatherKernel(
    const Unit* x, int64_t stride, const int32_t* rows, Unit* out, int64_t out_stride, int units) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const Unit* from = x + rows[blockIdx.x] * stride;
  Unit* to = out + blockIdx.x * out_stride;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += static_cast<int>(blockDim.x)) {
    to[i] = from[i];
  }
}

const __nv_bfloat16* In(const Tensor& tensor) {
  return reinterpret_cast<const __nv_bfloat16*>(tensor.data);
}
__nv_bfloat16* Out(const Tensor& tensor) {
  return reinterpret_cast<__nv_bfloat16*>(tensor.data);
}
float* Floats(const Tensor& tensor) {
  return reinterpret_cast<float*>(tensor.data);
}

unsigned Rows(const Tensor& tensor) {
  return static_cast<unsigned>(tensor.rows);
}

// Threads, in whole warps and at most `most`, for `cols` numbers with 8 numbers each.
unsigned ThreadsFor(int64_t cols, int64_t most) {
  return static_cast<unsigned>(std::min<int64_t>(RoundUp(CeilDiv(cols, 8), kWarp), most));
}

using NormFunction = void (*)(NormArguments);

template <int kVectors>
NormFunction NormFor(Delta delta, bool quantize) {
  switch (delta) {
    case Delta::kNone:
      return quantize ? NormKernel<kVectors, Delta::kNone, true>
                      : NormKernel<kVectors, Delta::kNone, false>;
    case Delta::kOne:
      return quantize ? NormKernel<kVectors, Delta::kOne, true>
                      : NormKernel<kVectors, Delta::kOne, false>;
    case Delta::kParts:
      return quantize ? NormKernel<kVectors, Delta::kParts, true>
                      : NormKernel<kVectors, Delta::kParts, false>;
    case Delta::kPeer:
      return quantize ? NormKernel<kVectors, Delta::kPeer, true>
                      : NormKernel<kVectors, Delta::kPeer, false>;
    case Delta::kPeers:
      return quantize ? NormKernel<kVectors, Delta::kPeers, true>
                      : NormKernel<kVectors, Delta::kPeers, false>;
    case Delta::kExperts:
      return quantize ? NormKernel<kVectors, Delta::kExperts, true>
                      : NormKernel<kVectors, Delta::kExperts, false>;
  }
  return nullptr;
}

Delta DeltaOf(const NormLaunch& launch) {
  if (launch.expert_results.results != nullptr) return Delta::kExperts;
  if (launch.delta.data == nullptr) return Delta::kNone;
  if (launch.peers.slots != nullptr) {
    return launch.peers.ranks == 2 ? Delta::kPeer : Delta::kPeers;
  }
  return launch.delta_parts > 1 ? Delta::kParts : Delta::kOne;
}

}  // namespace

cudaError_t LaunchEmbed(const __nv_bfloat16* table,
                        int64_t vocabulary,
                        int32_t first_token,
                        const int32_t* tokens,
                        const int32_t* chosen,
                        const Tensor& out,
                        cudaStream_t stream) {
  return LaunchOverlapped(EmbedKernel,
                          dim3(Rows(out)),
                          dim3(ThreadsFor(out.cols, 256)),
                          0,
                          stream,
                          table,
                          vocabulary,
                          first_token,
                          tokens,
                          chosen,
                          Floats(out),
                          out.stride,
                          static_cast<int>(out.cols));
}

bool NormReadsWholeRows(const Tensor& residual, const Tensor& delta) {
  return residual.cols % 8 == 0 && residual.cols <= kMaxFp8Columns && residual.stride % 8 == 0 &&
         (delta.data == nullptr || delta.stride % 8 == 0);
}

cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream) {
  const Tensor& residual = launch.residual;
  const Delta delta = DeltaOf(launch);
  const bool quantize = launch.fp8_out.data != nullptr;
  const NormArguments arguments = {
      .residual = Floats(residual),
      .residual_stride = residual.stride,
      .delta = In(launch.delta),
      .expert_results = launch.expert_results,
      .delta_stride = launch.delta.stride,
      .delta_parts = launch.delta_parts,
      .delta_part =
          launch.delta_part != 0 ? launch.delta_part : launch.delta.rows * launch.delta.cols,
      .peers = launch.peers,
      .to = launch.to,
      .delta_scales = launch.delta_scales,
      .weight = launch.weight,
      .epsilon = launch.epsilon,
      .out = Out(launch.out),
      .out_stride = launch.out.stride,
      .fp8_out = reinterpret_cast<uint8_t*>(launch.fp8_out.data),
      .scales = launch.fp8_out.scales,
      .cols = static_cast<int>(residual.cols),
  };
  if (residual.rows == 0) return cudaSuccess;
  const bool whole = NormReadsWholeRows(residual, launch.delta) && launch.out.stride % 8 == 0;
  const bool one = residual.cols <= 8 * 1024;
  const NormFunction kernel = !whole ? AnyNormKernel
                              : one  ? NormFor<1>(delta, quantize)
                                     : NormFor<2>(delta, quantize);
  const unsigned threads =
      whole ? ThreadsFor(one ? residual.cols : (residual.cols + 1) / 2, 1024) : 256;
  return LaunchOverlapped(kernel, dim3(Rows(residual)), dim3(threads), 0, stream, arguments);
}

cudaError_t LaunchSiluMul(const Tensor& gate_up, const Tensor& out, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  const int32_t vectors = CeilDiv(out.cols, 8);
  return LaunchOverlapped(SiluMulKernel,
                          dim3(CeilDiv(vectors, kThreads), Rows(out)),
                          dim3(kThreads),
                          0,
                          stream,
                          In(gate_up),
                          gate_up.stride,
                          Out(out),
                          out.stride,
                          static_cast<int>(out.cols));
}

cudaError_t LaunchRound(const Tensor& x, const Tensor& out, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  if (out.rows == 0) return cudaSuccess;
  return LaunchOverlapped(RoundKernel,
                          dim3(CeilDiv(CeilDiv(out.cols, 8), kThreads), Rows(out)),
                          dim3(kThreads),
                          0,
                          stream,
                          Floats(x),
                          x.stride,
                          Out(out),
                          out.stride,
                          static_cast<int>(out.cols));
}

cudaError_t LaunchGather(const Tensor& x,
                         const int32_t* rows,
                         const Tensor& out,
                         cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  const auto number = static_cast<int64_t>(ShapeOf(x.dtype).bytes);
  const auto launch = [&]<class Unit>(Unit /*unit*/) {
    const auto in_units = [&](int64_t numbers) {
      return numbers * number / static_cast<int64_t>(sizeof(Unit));
    };
    return LaunchOverlapped(GatherKernel<Unit>,
                            dim3(Rows(out)),
                            dim3(256),
                            0,
                            stream,
                            reinterpret_cast<const Unit*>(x.data),
                            in_units(x.stride),
                            rows,
                            reinterpret_cast<Unit*>(out.data),
                            in_units(out.stride),
                            static_cast<int>(in_units(out.cols)));
  };
  const bool whole = (x.cols | x.stride | out.stride) * number % sizeof(uint4) == 0;
  return whole ? launch(uint4{}) : launch(uint16_t{});
}

}  // namespace baton::cuda
