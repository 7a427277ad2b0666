#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// The convolution of recurrent layers over the last inputs, those of this step and those in the
// state.
namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfChunk = 4;  // that a thread block computes at a time

struct Arguments {
  StateArguments states;
  const __nv_bfloat16* x;
  int64_t x_stride;
  RecurrentColumns columns;
  int key_dim;
  int key_copies;
  int first_value_channel;
  int channels;  // of a key head
  int all_channels;
  int kernel;
  const float* weights;
  const float* bias;
  void* out;
  int64_t out_stride;
};

// The column of the inputs of a channel of a key head.
__device__ __forceinline__ int64_t ColumnOf(const Arguments& a, int key_head, int channel) {
  if (channel >= a.first_value_channel) {
    return a.columns.v + key_head * a.columns.value_stride + channel - a.first_value_channel;
  }
  const int64_t key = key_head / a.key_copies * a.columns.key_stride;
  return channel < a.key_dim ? a.columns.q + key + channel
                             : a.columns.k + key + channel - a.key_dim;
}

// Grid [tile of channels][chain]. A thread block computes kRows rows of a sequence at a time.
template <class Out, int kRows>
__global__ void __launch_bounds__(kThreads) Convolve(const __grid_constant__ Arguments a) {
  constexpr int kChannels = kThreads / kRows;
  __shared__ float kept[kMaxConvolvedInputs][kChannels];  // of the state, by position % kernel
  ReleaseSuccessor();
  const int thread_row = static_cast<int>(threadIdx.y);
  const int lane = static_cast<int>(threadIdx.x);
  const int channel = static_cast<int>(blockIdx.x) * kChannels + lane;
  const bool inside = channel < a.all_channels;
  const int key_head = inside ? channel / a.channels : 0;
  const int of_head = inside ? channel % a.channels : 0;
  const int64_t column = ColumnOf(a, key_head, of_head);
  const float* const weights = a.weights + int64_t{key_head} * a.kernel * a.channels + of_head;
  const float bias = a.bias != nullptr && inside ? a.bias[channel] : 0.0f;
  const uint32_t first_byte =
      a.states.layer + a.states.convolutions +
      static_cast<uint32_t>((key_head * a.kernel * a.channels + of_head) * kStateNumber);
  const auto input_at = [&](int row) { return __bfloat162float(a.x[row * a.x_stride + column]); };
  const int begin = a.states.chain_starts[blockIdx.y];
  const int end = a.states.chain_starts[blockIdx.y + 1];
  for (int index = begin; index < end; ++index) {
    const StateRows rows = a.states.rows[index];
#pragma unroll 4
    for (int i = thread_row; i < a.kernel && inside; i += kRows) {
      kept[i][lane] = 0.0f;
      if (rows.before < 0) continue;
      const uint32_t at = first_byte + static_cast<uint32_t>(i * a.channels) * kStateNumber;
      kept[i][lane] = NumberAt(a.states, rows.before, at);
    }
    // The kernels before this one in the step do not write these states.
    if (index == begin) WaitForPredecessor();
    __syncthreads();
    // The first position whose input is one of the step. A row that is in its state has none.
    const int first = rows.after < 0 ? rows.context + 1 : rows.context;
    for (int i = thread_row; i < rows.row_count && inside; i += kRows) {
      float sum = bias;
#pragma unroll 4
      for (int tap = 0; tap < a.kernel; ++tap) {
        const int position = rows.context + i - a.kernel + 1 + tap;
        const float input = position >= first ? input_at(rows.first_row + position - rows.context)
                                              : kept[(position + a.kernel) % a.kernel][lane];
        sum = fmaf(input, weights[tap * a.channels], sum);
      }
      Store(Silu(sum), static_cast<Out*>(a.out) + (rows.first_row + i) * a.out_stride + channel);
    }
    if (rows.after >= 0) {
      const int last = rows.context + rows.row_count - 1;
      for (int i = thread_row; i < a.kernel && inside; i += kRows) {
        // The newest position whose place this is.
        const int position = last - (last + a.kernel - i) % a.kernel;
        const bool is_new = position >= first;
        if (!is_new && rows.same != 0) continue;
        const uint32_t at = first_byte + static_cast<uint32_t>(i * a.channels) * kStateNumber;
        NumberAt(a.states, rows.after, at) =
            is_new ? input_at(rows.first_row + position - rows.context) : kept[i][lane];
      }
    }
    __syncthreads();
  }
}

template <class Out, int kRows>
cudaError_t Launch(const Arguments& a, int chains, cudaStream_t stream) {
  constexpr int kChannels = kThreads / kRows;
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.all_channels, kChannels)),
                  static_cast<unsigned>(chains));
  return LaunchOverlapped(Convolve<Out, kRows>, grid, dim3(kChannels, kRows), 0, stream, a);
}

template <class Out>
cudaError_t LaunchFor(const Arguments& a, const StateLayout& states, cudaStream_t stream) {
  return states.single_rows ? Launch<Out, 1>(a, states.chains, stream)
                            : Launch<Out, kRowsOfChunk>(a, states.chains, stream);
}

}  // namespace

cudaError_t LaunchConvolve(const ConvolveOp& op,
                           const StateLayout& states,
                           const KvView& kv,
                           cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  if (shape.kernel > kMaxConvolvedInputs) return cudaErrorNotSupported;
  const Arguments a = {.states = StatesOf(shape, op.layer.layer, states, kv),
                       .x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                       .x_stride = op.x.stride,
                       .columns = ColumnsOf(shape),
                       .key_dim = shape.key_dim,
                       .key_copies = shape.key_copies,
                       .first_value_channel = shape.first_value_channel(),
                       .channels = shape.channels(),
                       .all_channels = shape.key_heads * shape.channels(),
                       .kernel = shape.kernel,
                       .weights = op.layer.convolution,
                       .bias = op.layer.convolution_bias,
                       .out = op.out.data,
                       .out_stride = op.out.stride};
  return op.out.dtype == DType::kF32 ? LaunchFor<float>(a, states, stream)
                                     : LaunchFor<__nv_bfloat16>(a, states, stream);
}

}  // namespace baton::cuda
