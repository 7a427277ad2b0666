#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"

// The selective scan. A thread keeps a column of S in registers while it walks the rows of a chain.
namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsAtOnce = 16;  // whose k and q are in shared memory

struct Arguments {
  StateArguments states;
  RecurrentLayer layer;
  const __nv_bfloat16* v;
  int64_t v_stride;
  const __nv_bfloat16* gates;
  int64_t gates_stride;
  const __nv_bfloat16* k;
  int64_t k_stride;
  const __nv_bfloat16* q;
  int64_t q_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
};

// Grid [tile of columns of all heads][chain].
template <int kRows>
__global__ void __launch_bounds__(kThreads) Scan(const __grid_constant__ Arguments a) {
  __shared__ float k[kRowsAtOnce][kRows];
  __shared__ float q[kRowsAtOnce][kRows];
  ReleaseSuccessor();
  const RecurrentShape& shape = a.layer.shape;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.x) * kThreads + thread;  // of all heads
  const bool inside = column < shape.value_heads * shape.value_dim;
  const int head = inside ? column / shape.value_dim : 0;
  const int of_head = inside ? column % shape.value_dim : 0;
  const int numbers = shape.key_dim * shape.value_dim;
  const uint32_t first_byte = a.states.layer + static_cast<uint32_t>(head * numbers) * kStateNumber;
  float rates[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool present = inside && i < shape.key_dim;
    const int64_t at = int64_t{head} * numbers + int64_t{i} * shape.value_dim + of_head;
    rates[i] = present ? -expf(a.layer.decay[at]) : 0.0f;
  }
  const float bias = inside ? a.layer.time_bias[column] : 0.0f;
  const float skip = inside ? a.layer.skip[column] : 0.0f;
  float s[kRows];
  const int end = a.states.chain_starts[blockIdx.y + 1];
  WaitForPredecessor();
  for (int index = a.states.chain_starts[blockIdx.y]; index < end; ++index) {
    const StateRows rows = a.states.rows[index];
#pragma unroll
    for (int i = 0; i < kRows; ++i) s[i] = 0.0f;
    if (rows.before >= 0 && inside) {
      const StateNumbers from(a.states, rows.before, first_byte, numbers);
      from.ForEach<kRows>(
          of_head, shape.value_dim, shape.key_dim, [&](int i, float number) { s[i] = number; });
    }
    for (int done = 0; done < rows.row_count; done += kRowsAtOnce) {
      const int some = min(kRowsAtOnce, rows.row_count - done);
      const int64_t first_row = rows.first_row + done;
      __syncthreads();  // all have read the inputs before
      for (int i = thread; i < some * kRows; i += kThreads) {
        const int64_t row = first_row + i / kRows;
        const int number = i % kRows;
        const bool present = number < shape.key_dim;
        k[i / kRows][number] = present ? __bfloat162float(a.k[row * a.k_stride + number]) : 0.0f;
        q[i / kRows][number] = present ? __bfloat162float(a.q[row * a.q_stride + number]) : 0.0f;
      }
      __syncthreads();
      for (int r = 0; r < some && inside; ++r) {
        const int64_t row = first_row + r;
        const float v = __bfloat162float(a.v[row * a.v_stride + column]);
        const float time =
            SoftPlus(__bfloat162float(a.gates[row * a.gates_stride + column]) + bias);
        const float added = time * v;
        float out = 0;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (rows.after >= 0) s[i] = fmaf(k[r][i], added, __expf(time * rates[i]) * s[i]);
          out = fmaf(q[r][i], s[i], out);
        }
        a.out[row * a.out_stride + column] = __float2bfloat16(fmaf(skip, v, out));
      }
    }
    if (rows.after < 0 || !inside) continue;
    const StateNumbers to(a.states, rows.after, first_byte, numbers);
    to.ForEach<kRows>(
        of_head, shape.value_dim, shape.key_dim, [&](int i, float& number) { number = s[i]; });
  }
}

template <int kRows>
cudaError_t Launch(const Arguments& a, int chains, cudaStream_t stream) {
  const RecurrentShape& shape = a.layer.shape;
  const int columns = shape.value_heads * shape.value_dim;
  const dim3 grid(static_cast<unsigned>(CeilDiv(columns, kThreads)), static_cast<unsigned>(chains));
  return LaunchOverlapped(Scan<kRows>, grid, dim3(kThreads), 0, stream, a);
}

}  // namespace

cudaError_t LaunchScan(const ScanOp& op,
                       const StateLayout& states,
                       const KvView& kv,
                       cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  const auto numbers = [](const Tensor& x) { return reinterpret_cast<__nv_bfloat16*>(x.data); };
  const Arguments a = {.states = StatesOf(shape, op.layer.layer, states, kv),
                       .layer = op.layer,
                       .v = numbers(op.v),
                       .v_stride = op.v.stride,
                       .gates = numbers(op.gates),
                       .gates_stride = op.gates.stride,
                       .k = numbers(op.k),
                       .k_stride = op.k.stride,
                       .q = numbers(op.q),
                       .q_stride = op.q.stride,
                       .out = numbers(op.out),
                       .out_stride = op.out.stride};
  if (shape.key_dim <= 16) return Launch<16>(a, states.chains, stream);
  if (shape.key_dim <= kMaxScanRows) return Launch<kMaxScanRows>(a, states.chains, stream);
  return cudaErrorNotSupported;
}

}  // namespace baton::cuda
