#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// The convolution of recurrent layers, in one thread (convolve.cu, prepare_chunks.cu).
namespace baton::cuda {

inline constexpr int kChannelVector = 8;  // channels that a thread reads at once

struct ChannelArguments {
  StateArguments states;
  const __nv_bfloat16* x;
  int64_t x_stride;
  RecurrentColumns columns;
  int key_dim;
  int key_copies;
  int first_value_channel;
  int channels;  // of a key head
  int kernel;
  const float* weights;
  const float* bias;
};

inline ChannelArguments ChannelsOf(const RecurrentLayer& layer,
                                   const Tensor& x,
                                   const StateLayout& states,
                                   const KvView& kv) {
  const RecurrentShape& shape = layer.shape;
  return {.states = StatesOf(shape, layer.layer, states, kv),
          .x = reinterpret_cast<const __nv_bfloat16*>(x.data),
          .x_stride = x.stride,
          .columns = ColumnsOf(shape),
          .key_dim = shape.key_dim,
          .key_copies = shape.key_copies,
          .first_value_channel = shape.first_value_channel(),
          .channels = shape.channels(),
          .kernel = shape.kernel,
          .weights = layer.convolution,
          .bias = layer.convolution_bias};
}

// Whether threads may read kChannelVector channels at once.
inline bool HasChannelVectors(const ChannelArguments& a) {
  const int64_t all = a.columns.q | a.columns.k | a.columns.v | a.columns.key_stride |
                      a.columns.value_stride | a.key_dim | a.channels | a.x_stride;
  return all % kChannelVector == 0 && reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
}

// kChannels (1, 4 or kChannelVector) neighbouring channels of a key head. Walks the rows of a
// sequence, kRows at a time, with the last kTaps inputs in registers; where the layer has fewer
// inputs, the first ones have no weight. kChunked: for sequences of StateChunks alone, and with
// FastSilu.
template <int kChannels, int kTaps, int kRows, bool kChunked>
class Channels {
  // Neighbouring inputs as they are loaded.
  using Packed = std::
      conditional_t<kChannels == 1, uint16_t, std::conditional_t<kChannels == 4, uint2, uint4>>;
  static_assert(sizeof(Packed) == sizeof(__nv_bfloat16) * kChannels);

 public:
  __device__ __forceinline__ Channels(const ChannelArguments& a, int key_head, int channel)
      : a_(a), key_head_(key_head), channel_(channel), x_(a.x + ColumnOf(a, key_head, channel)) {
    const float* const weights = a.weights + int64_t{key_head} * a.kernel * a.channels + channel;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      bias_[i] = a.bias != nullptr ? a.bias[key_head * a.channels + channel + i] : 0.0f;
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const int present = tap - (kTaps - a.kernel);
        weights_[tap][i] = present >= 0 ? weights[present * a.channels + i] : 0.0f;
      }
    }
  }

  // Loads the inputs before row `first` of a sequence. Waits for the kernels before this one, which
  // do not write these states.
  __device__ __forceinline__ void Begin(const StateRows& rows, int first) {
#pragma unroll
    for (int tap = 0; tap < kTaps - 1; ++tap) {
      const int row = first - (kTaps - 1) + tap;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) inputs_[tap][i] = 0.0f;
      if (row < 0 && row > -a_.kernel && rows.before >= 0) {
        Kept(rows, Slot(rows.context + row), inputs_[tap]);
      }
    }
    WaitForPredecessor();
#pragma unroll
    for (int tap = 0; tap < kTaps - 1; ++tap) {
      const int row = first - (kTaps - 1) + tap;
      if (row >= 0) Input(rows.first_row + row, inputs_[tap]);
    }
  }

  // Calls body(row, silu(convolution)) for rows [first, end) of a sequence, after
  // Begin(rows, first).
  template <class Body>
  __device__ __forceinline__ void Run(const StateRows& rows, int first, int end, const Body& body) {
    for (int row = first; row < end; row += kRows) {
      Packed loaded[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r < end) loaded[r] = Load(rows.first_row + row + r);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (row + r < end) {
          float input[kChannels];
          Unpack(loaded[r], input);
          // A row that is in its state already has its input there.
          if (!kChunked && r == 0 && rows.after < 0) Kept(rows, Slot(rows.context), input);
          float sums[kChannels];
          Convolve(input, sums);
          body(row + r, sums);
        }
      }
    }
  }

  // Writes the last inputs of a sequence into its state.
  __device__ __forceinline__ void End(const StateRows& rows) const {
    if (rows.after < 0) return;
    const int last = rows.context + rows.row_count - 1;
    for (int slot = 0; slot < a_.kernel; ++slot) {
      // The newest position whose place this is.
      const int position = last - (last + a_.kernel - slot) % a_.kernel;
      const bool is_new = position >= rows.context;
      if (!is_new && rows.same != 0) continue;
      float numbers[kChannels] = {};
      if (is_new) {
        Input(rows.first_row + position - rows.context, numbers);
      } else if (rows.before >= 0) {
        Kept(rows, slot, numbers);
      }
      StateNumbers(a_.states, rows.after, FirstByte(slot), kChannels)
          .ForEach<kChannels>(0, 1, kChannels, [&](int i, float& to) { to = numbers[i]; });
    }
  }

 private:
  // The column of the inputs of a channel of a key head.
  static __device__ __forceinline__ int64_t ColumnOf(const ChannelArguments& a,
                                                     int key_head,
                                                     int channel) {
    if (channel >= a.first_value_channel) {
      return a.columns.v + key_head * a.columns.value_stride + channel - a.first_value_channel;
    }
    const int64_t key = key_head / a.key_copies * a.columns.key_stride;
    return channel < a.key_dim ? a.columns.q + key + channel
                               : a.columns.k + key + channel - a.key_dim;
  }

  __device__ __forceinline__ int Slot(int position) const {
    return (position + a_.kernel) % a_.kernel;
  }
  __device__ __forceinline__ uint32_t FirstByte(int slot) const {
    const int number = (key_head_ * a_.kernel + slot) * a_.channels + channel_;
    return a_.states.layer + a_.states.convolutions + static_cast<uint32_t>(number) * kStateNumber;
  }
  // The inputs that the state before the sequence has in a slot.
  __device__ __forceinline__ void Kept(const StateRows& rows,
                                       int slot,
                                       float (&to)[kChannels]) const {
    StateNumbers(a_.states, rows.before, FirstByte(slot), kChannels)
        .ForEach<kChannels>(0, 1, kChannels, [&](int i, float number) { to[i] = number; });
  }
  __device__ __forceinline__ Packed Load(int64_t row) const {
    return *reinterpret_cast<const Packed*>(x_ + row * a_.x_stride);
  }
  static __device__ __forceinline__ void Unpack(const Packed& from, float (&to)[kChannels]) {
    if constexpr (kChannels == 1) {
      to[0] = __bfloat162float(__ushort_as_bfloat16(from));
    } else {
      UnpackPair(from.x, to[0], to[1]);
      UnpackPair(from.y, to[2], to[3]);
      if constexpr (kChannels == kChannelVector) {
        UnpackPair(from.z, to[4], to[5]);
        UnpackPair(from.w, to[6], to[7]);
      }
    }
  }
  // A bf16 number is the upper half of the same float32 number.
  static __device__ __forceinline__ void UnpackPair(uint32_t pair, float& first, float& second) {
    first = __uint_as_float(pair << 16);
    second = __uint_as_float(pair & 0xffff0000u);
  }
  __device__ __forceinline__ void Input(int64_t row, float (&to)[kChannels]) const {
    Unpack(Load(row), to);
  }
  __device__ __forceinline__ void Convolve(const float (&input)[kChannels],
                                           float (&sums)[kChannels]) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      sums[i] = bias_[i];
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        if (tap < kTaps - a_.kernel) continue;
        const float number = tap == kTaps - 1 ? input[i] : inputs_[tap][i];
        sums[i] = fmaf(number, weights_[tap][i], sums[i]);
      }
      sums[i] = kChunked ? FastSilu(sums[i]) : Silu(sums[i]);
#pragma unroll
      for (int tap = 0; tap < kTaps - 1; ++tap) {
        inputs_[tap][i] = tap == kTaps - 2 ? input[i] : inputs_[tap + 1][i];
      }
    }
  }

  const ChannelArguments& a_;
  const int key_head_;
  const int channel_;  // of the key head
  const __nv_bfloat16* const x_;
  float weights_[kTaps][kChannels];
  float bias_[kChannels];
  float inputs_[kTaps - 1][kChannels];  // before the row, the oldest first
};

}  // namespace baton::cuda
