#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/recurrent/channels.cuh"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"

// The convolution of recurrent layers over the last inputs, those of this step and those in the
// state.
namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsAtOnce = 4;
// Rows of a chunk for one thread block. At least as many as there are inputs of a convolution, so
// that only the first part of a sequence needs its state.
constexpr int kPartRows = 64;
static_assert(kPartRows >= kMaxConvolvedInputs);

struct Arguments {
  ChannelArguments channels;
  int all_channels;
  void* out;
  int64_t out_stride;
};

// Grid [tile of channels][chain][part of its rows].
template <class Out, int kChannels, int kTaps>
__global__ void __launch_bounds__(kThreads) Convolve(const __grid_constant__ Arguments a) {
  ReleaseSuccessor();
  const StateArguments& states = a.channels.states;
  const int channel = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kChannels;
  const int begin = states.chain_starts[blockIdx.y];
  const int end = states.chain_starts[blockIdx.y + 1];
  const auto part = static_cast<int>(blockIdx.z);
  const auto parts = static_cast<int>(gridDim.z);
  // A later sequence of a chain may read the state that an earlier one writes.
  if (channel >= a.all_channels || (end - begin > 1 && part > 0)) {
    WaitForPredecessor();
    return;
  }
  const int of_head = a.channels.channels;
  Channels<kChannels, kTaps, kRowsAtOnce, /*kChunked=*/false> channels(
      a.channels, channel / of_head, channel % of_head);
  for (int index = begin; index < end; ++index) {
    const StateRows rows = states.rows[index];
    const int size =
        end - begin > 1 ? rows.row_count : max(kPartRows, CeilDiv(rows.row_count, parts));
    const int first = part * size;
    if (first >= rows.row_count) break;  // of the only sequence
    channels.Begin(rows, first);
    channels.Run(rows,
                 first,
                 min(first + size, rows.row_count),
                 [&](int row, const float(&sums)[kChannels]) {
                   Out* const out =
                       static_cast<Out*>(a.out) + (rows.first_row + row) * a.out_stride + channel;
                   if constexpr (kChannels == kChannelVector) {
                     Write8(out, sums);
                   } else {
#pragma unroll
                     for (int i = 0; i < kChannels; ++i) Store(sums[i], out + i);
                   }
                 });
    if (part == 0) channels.End(rows);
  }
}

template <class Out, int kChannels, int kTaps>
cudaError_t Launch(const Arguments& a, int chains, int parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.all_channels, kThreads * kChannels)),
                  static_cast<unsigned>(chains),
                  static_cast<unsigned>(parts));
  return LaunchOverlapped(Convolve<Out, kChannels, kTaps>, grid, dim3(kThreads), 0, stream, a);
}

bool HasVectors(const Arguments& a) {
  return HasChannelVectors(a.channels) && a.out_stride % kChannelVector == 0 &&
         reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
}

template <class Out>
cudaError_t LaunchFor(const Arguments& a,
                      const StateLayout& states,
                      int64_t rows,
                      cudaStream_t stream) {
  constexpr int kFewTaps = 4;
  const int chains = states.chains;
  if (a.channels.kernel > kFewTaps) {
    return Launch<Out, 1, kMaxConvolvedInputs>(a, chains, 1, stream);
  }
  if (states.single_rows) return Launch<Out, 1, kFewTaps>(a, chains, 1, stream);
  // As if one chain had all rows.
  constexpr int kMaxParts = 256;
  const int parts = std::clamp(CeilDiv(rows, kPartRows), 1, kMaxParts);
  return HasVectors(a) ? Launch<Out, kChannelVector, kFewTaps>(a, chains, parts, stream)
                       : Launch<Out, 1, kFewTaps>(a, chains, parts, stream);
}

}  // namespace

cudaError_t LaunchConvolve(const ConvolveOp& op,
                           const StateLayout& states,
                           const KvView& kv,
                           cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  if (shape.kernel > kMaxConvolvedInputs) return cudaErrorNotSupported;
  const Arguments a = {.channels = ChannelsOf(op.layer, op.x, states, kv),
                       .all_channels = shape.key_heads * shape.channels(),
                       .out = op.out.data,
                       .out_stride = op.out.stride};
  return op.out.dtype == DType::kF32 ? LaunchFor<float>(a, states, op.x.rows, stream)
                                     : LaunchFor<__nv_bfloat16>(a, states, op.x.rows, stream);
}

}  // namespace baton::cuda
