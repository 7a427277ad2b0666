#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/cuda/table/recurrent_request.h"
#include "kernels/recurrent_columns.h"

// What a decoding row has for the update of a head's S (decode_rows.cu): q, k and v after the
// convolution, and the factors. Computes the bits of convolve.cu and update_states.cu.
namespace baton::cuda {

inline constexpr int kDecodeDim = kDeltaStateDim;  // rows and columns of S
inline constexpr int kDecodeThreads = 256;
inline constexpr int kDecodeWarps = kDecodeThreads / 32;
// The sums over the rows of S that update_states.cu adds up: of two halves, by row % 4. A warp has
// the rows of one of them.
inline constexpr int kDecodeHalves = 2;
inline constexpr int kDecodeParts = 4;
inline constexpr int kDecodeHalfRows = kDecodeDim / kDecodeHalves;
inline constexpr int kDecodeWarpRows = kDecodeDim / kDecodeWarps;
static_assert(kDecodeWarps == kDecodeHalves * kDecodeParts);

struct DecodeRowsArguments {
  StateArguments states;
  RecurrentLayer layer;
  RecurrentColumns columns;
  int group;     // value heads of a key head
  int channels;  // of a key head
  const __nv_bfloat16* x;
  int64_t x_stride;
  const __nv_bfloat16* gates;
  int64_t gates_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
};

// In shared memory. The numbers of the rows of S are in the order of DecodePlace.
struct alignas(16) DecodeInputs {
  float q[kDecodeDim];
  float k[kDecodeDim];
  float decays[kDecodeDim];  // by row of S; with kDelta, the first one is for all rows
  float v[kDecodeDim];
  float beta;
};

// Row number `index` of those of a warp.
__device__ __forceinline__ int DecodeRowOf(int warp, int index) {
  return warp / kDecodeParts * kDecodeHalfRows + warp % kDecodeParts + kDecodeParts * index;
}
// The place of a row of S in the order of the warps.
__device__ __forceinline__ int DecodePlace(int row) {
  const int warp = row / kDecodeHalfRows * kDecodeParts + row % kDecodeParts;
  return warp * kDecodeWarpRows + row % kDecodeHalfRows / kDecodeParts;
}

// The inputs of a value head in one row. The first four warps make them: q, k, v and the factors. A
// lane has four neighbouring channels, which no border of blocks parts.
template <RecurrentRule kRule>
class DecodeInputsOf {
 public:
  __device__ __forceinline__ DecodeInputsOf(const DecodeRowsArguments& a,
                                            const StateRows& rows,
                                            int head)
      : a_(a), rows_(rows), head_(head), key_head_(head / a.group), in_group_(head % a.group) {}

  // Waits for the kernels before this one. The first value head of a key head writes the inputs of
  // q and k into the state.
  __device__ __forceinline__ void Make(DecodeInputs& to) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= 3) {
      WaitForPredecessor();
      if (warp == 3) MakeFactors(to);
      return;
    }
    const bool is_value = warp == 2;
    const int of_head = is_value ? in_group_ * kDecodeDim : 0;
    const int64_t column =
        is_value ? a_.columns.v + key_head_ * a_.columns.value_stride + of_head
                 : (warp == 0 ? a_.columns.q : a_.columns.k) + key_head_ * a_.columns.key_stride;
    const float4 numbers =
        Convolve(warp * kDecodeDim + of_head, column, is_value || in_group_ == 0);
    if (is_value) {
      AsVector(to.v[kOfLane * Lane()]) = numbers;
    } else {
      Normalise(numbers,
                warp == 0 ? rsqrtf(static_cast<float>(a_.layer.shape.key_dim)) : 1.0f,
                warp == 0 ? to.q : to.k);
    }
  }

  // The first column of z.
  __device__ __forceinline__ int64_t z_column() const {
    return a_.columns.z + key_head_ * a_.columns.value_stride + in_group_ * kDecodeDim;
  }

 private:
  static constexpr int kOfLane = kDecodeDim / 32;  // channels of a lane
  static constexpr float kLengthEpsilon = 1e-6f;   // added to the squared lengths of q and k

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ float4& AsVector(float& x) {
    return reinterpret_cast<float4&>(x);
  }

  static __device__ __forceinline__ float4 VectorAt(const float* numbers, int first) {
    return *reinterpret_cast<const float4*>(numbers + first);
  }

  // The input of the lane's channels in a place of the key head's ring of inputs.
  __device__ __forceinline__ float4& InputAt(int32_t table, int place, int channel) const {
    const int number = (key_head_ * a_.layer.shape.kernel + place) * a_.channels + channel;
    return AsVector(NumberAt(
        a_.states,
        table,
        a_.states.layer + a_.states.convolutions + static_cast<uint32_t>(number) * kStateNumber));
  }

  // silu(convolution) of the lane's channels. Those of the warp begin at `channel` of the key head
  // and at `column` of x. Writes the inputs into the state if it `writes`.
  __device__ __forceinline__ float4 Convolve(int channel, int64_t column, bool writes) const {
    const int kernel = a_.layer.shape.kernel;
    channel += kOfLane * Lane();
    column += kOfLane * Lane();
    const int oldest = (rows_.context + 1) % kernel;  // its place
    const bool is_new = rows_.after >= 0;             // else the row is in the state
    float4 inputs[kMaxDeltaInputs] = {};
    float4 factors[kMaxDeltaInputs] = {};
    float4 sum = {};
#pragma unroll
    for (int tap = 0; tap < kMaxDeltaInputs; ++tap) {
      if (tap < kernel) {
        if (rows_.before >= 0 && (!is_new || tap < kernel - 1)) {
          inputs[tap] = InputAt(rows_.before, PlaceOf(oldest, tap), channel);
        }
        factors[tap] =
            VectorAt(a_.layer.convolution, (key_head_ * kernel + tap) * a_.channels + channel);
      }
    }
    if (a_.layer.convolution_bias != nullptr) {
      sum = VectorAt(a_.layer.convolution_bias, key_head_ * a_.channels + channel);
    }
    WaitForPredecessor();
    const auto* const x =
        reinterpret_cast<const __nv_bfloat162*>(a_.x + rows_.first_row * a_.x_stride + column);
    const float2 low = __bfloat1622float2(x[0]);
    const float2 high = __bfloat1622float2(x[1]);
#pragma unroll
    for (int tap = 0; tap < kMaxDeltaInputs; ++tap) {
      if (tap < kernel) {
        const bool is_newest = is_new && tap == kernel - 1;
        const float4 input = {is_newest ? low.x : inputs[tap].x,
                              is_newest ? low.y : inputs[tap].y,
                              is_newest ? high.x : inputs[tap].z,
                              is_newest ? high.y : inputs[tap].w};
        if (is_new && writes && (is_newest || rows_.same == 0)) {
          InputAt(rows_.after, PlaceOf(oldest, tap), channel) = input;
        }
        sum.x = fmaf(input.x, factors[tap].x, sum.x);
        sum.y = fmaf(input.y, factors[tap].y, sum.y);
        sum.z = fmaf(input.z, factors[tap].z, sum.z);
        sum.w = fmaf(input.w, factors[tap].w, sum.w);
      }
    }
    return {Silu(sum.x), Silu(sum.y), Silu(sum.z), Silu(sum.w)};
  }

  __device__ __forceinline__ int PlaceOf(int oldest, int tap) const {
    const int place = oldest + tap;
    return place < a_.layer.shape.kernel ? place : place - a_.layer.shape.kernel;
  }

  // The warp's numbers divided by their length, times `factor`, in the order of DecodePlace.
  __device__ __forceinline__ void Normalise(float4 numbers,
                                            float factor,
                                            float (&to)[kDecodeDim]) const {
    // The order of sums is that of update_states.cu.
    AsVector(to[kOfLane * Lane()]) = numbers;
    __syncwarp();
    float ordered[kOfLane];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      ordered[i] = to[Lane() + 32 * i];
      squares = fmaf(ordered[i], ordered[i], squares);
    }
    const float scale = rsqrtf(SumOverWarp(squares) + kLengthEpsilon) * factor;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) to[DecodePlace(Lane() + 32 * i)] = ordered[i] * scale;
  }

  __device__ __forceinline__ void MakeFactors(DecodeInputs& to) const {
    const RecurrentLayer& layer = a_.layer;
    const __nv_bfloat16* const gates = a_.gates + rows_.first_row * a_.gates_stride;
    const float rate = -expf(layer.decay[head_]);
    if constexpr (kRule == RecurrentRule::kChannelDelta) {
      const int first = head_ * kDecodeDim;
#pragma unroll
      for (int i = Lane(); i < kDecodeDim; i += 32) {
        const float gate = __bfloat162float(gates[first + i]) + layer.time_bias[first + i];
        to.decays[DecodePlace(i)] = expf(rate * SoftPlus(gate));
      }
      const __nv_bfloat16* const x = a_.x + rows_.first_row * a_.x_stride;
      if (Lane() == 0) to.beta = Sigmoid(__bfloat162float(x[a_.columns.beta + head_]));
    } else if (Lane() == 0) {
      const __nv_bfloat16* const of_key = gates + 2 * a_.group * key_head_ + in_group_;
      const float time = SoftPlus(__bfloat162float(of_key[a_.group]) + layer.time_bias[head_]);
      to.decays[0] = expf(rate * time);
      to.beta = Sigmoid(__bfloat162float(of_key[0]));
    }
  }

  const DecodeRowsArguments& a_;
  const StateRows& rows_;
  const int head_;  // value head
  const int key_head_;
  const int in_group_;
};

}  // namespace baton::cuda
