#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// What follows for each row alone after the states: skips, gates and norms.
namespace baton::cuda {
namespace {

constexpr int kMaxThreads = 256;

struct Arguments {
  RecurrentLayer layer;
  RecurrentColumns columns;
  int group;                // value heads of a key head
  int channels;             // of a key head
  int first_value_channel;  // of these
  const int32_t* rows;      // null: all
  const float* outputs;
  int64_t outputs_stride;
  const float* convolved;
  int64_t convolved_stride;
  const __nv_bfloat16* x;
  int64_t x_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
};

// Sums over the threads of a block, in a fixed order.
__device__ __forceinline__ float SumOverBlock(float mine) {
  __shared__ float parts[kMaxThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  mine = SumOverWarp(mine);
  if (lane == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  return SumOverWarp(lane < static_cast<int>(blockDim.x) / 32 ? parts[lane] : 0.0f);
}

// Grid [row][key head, or value head with a norm of its own]. The numbers of a thread are computed
// twice, from the L1 cache.
template <RecurrentRule kRule>
__global__ void FinishRows(const __grid_constant__ Arguments a) {
  constexpr bool kAdds = kRule == RecurrentRule::kStateSpace;
  ReleaseSuccessor();
  WaitForPredecessor();
  const RecurrentShape& shape = a.layer.shape;
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : static_cast<int32_t>(blockIdx.x);
  const int part = static_cast<int>(blockIdx.y);
  const int group = a.group;
  const int size = kAdds ? group * shape.value_dim : shape.value_dim;
  const int key_head = kAdds ? part : part / group;
  const int first = part * size - key_head * group * shape.value_dim;  // of the key head's values
  const float* const outputs = a.outputs + row * a.outputs_stride + int64_t{part} * size;
  const float* const v = a.convolved + row * a.convolved_stride + int64_t{key_head} * a.channels +
                         a.first_value_channel + first;
  const __nv_bfloat16* const z =
      a.x + row * a.x_stride + a.columns.z + key_head * a.columns.value_stride + first;
  const auto value_at = [&](int i) {
    if constexpr (kAdds) {
      const float skip = a.layer.skip[part * group + i / shape.value_dim];
      const float value = fmaf(v[i], skip, outputs[i]);
      return value * Silu(__bfloat162float(z[i]) * a.layer.gate_scale);
    } else {
      return outputs[i];
    }
  };
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  float scale = 1.0f;
  if (a.layer.norm != nullptr) {
    float squares = 0;
    for (int i = thread; i < size; i += threads) {
      const float value = value_at(i);
      squares = fmaf(value, value, squares);
    }
    scale = rsqrtf(SumOverBlock(squares) / static_cast<float>(size) + a.layer.norm_epsilon);
  }
  __nv_bfloat16* const out = a.out + row * a.out_stride + int64_t{part} * size;
  const float* const norm = kAdds ? a.layer.norm + int64_t{part} * size : a.layer.norm;
  for (int i = thread; i < size; i += threads) {
    float value = value_at(i);
    if (a.layer.norm != nullptr) value *= scale * norm[i];
    if constexpr (kRule == RecurrentRule::kDelta) value *= Silu(__bfloat162float(z[i]));
    out[i] = __float2bfloat16(value);
  }
}

template <RecurrentRule kRule>
cudaError_t Launch(const Arguments& a, int64_t rows, cudaStream_t stream) {
  const RecurrentShape& shape = a.layer.shape;
  const bool adds = kRule == RecurrentRule::kStateSpace;
  const int size = adds ? shape.group() * shape.value_dim : shape.value_dim;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>(adds ? shape.key_heads : shape.value_heads));
  const dim3 block(static_cast<unsigned>(std::min(RoundUp(size, 32), kMaxThreads)));
  return LaunchOverlapped(FinishRows<kRule>, grid, block, 0, stream, a);
}

}  // namespace

cudaError_t LaunchFinishRows(const FinishRowsOp& op,
                             const StateLayout& states,
                             cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  const Arguments a = {.layer = op.layer,
                       .columns = ColumnsOf(shape),
                       .group = shape.group(),
                       .channels = shape.channels(),
                       .first_value_channel = shape.first_value_channel(),
                       .rows = states.d_row_list,
                       .outputs = reinterpret_cast<const float*>(op.outputs.data),
                       .outputs_stride = op.outputs.stride,
                       .convolved = reinterpret_cast<const float*>(op.convolved.data),
                       .convolved_stride = op.convolved.stride,
                       .x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                       .x_stride = op.x.stride,
                       .out = reinterpret_cast<__nv_bfloat16*>(op.out.data),
                       .out_stride = op.out.stride};
  const int64_t rows = states.d_row_list != nullptr ? states.row_count : op.out.rows;
  switch (shape.rule) {
    case RecurrentRule::kDelta:
      return Launch<RecurrentRule::kDelta>(a, rows, stream);
    case RecurrentRule::kChannelDelta:
      return Launch<RecurrentRule::kChannelDelta>(a, rows, stream);
    case RecurrentRule::kStateSpace:
      return Launch<RecurrentRule::kStateSpace>(a, rows, stream);
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return cudaErrorNotSupported;
}

}  // namespace baton::cuda
