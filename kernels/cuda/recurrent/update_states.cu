#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// The update of the matrices S. The columns of S do not depend on each other: one to four
// neighbouring threads keep one in registers while they walk the rows of a chain. A thread has at
// most 64 rows, so that enough thread blocks fit an SM to load states while others compute.
namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
// Of an SM: registers bound the loads that are under way.
constexpr int kBlocks = 3;
constexpr int kRowsAtOnce = 8;  // whose q, k and factors are in shared memory
// Sums over the rows of S have this many parts, so that additions do not wait for each other.
constexpr int kParts = 4;
// Added to the squared lengths of q and k.
constexpr float kLengthEpsilon = 1e-6f;

struct Arguments {
  StateArguments states;
  RecurrentLayer layer;
  int64_t beta_column;
  int group;                // value heads of a key head
  int channels;             // of a key head
  int first_value_channel;  // of these
  const float* convolved;
  int64_t convolved_stride;
  const __nv_bfloat16* x;
  int64_t x_stride;
  const __nv_bfloat16* gates;
  int64_t gates_stride;
  float* out;
  int64_t out_stride;
};

// What all threads of a block read of a row. Behind the numbers of each of kLanes threads is a gap,
// so that they read from different banks.
template <int kRows, int kLanes>
struct alignas(16) RowInputs {
  static constexpr int kKeyDim = kRows * kLanes;
  static constexpr int kGap = 4;
  static constexpr int kNumbers = kLanes * (kRows + kGap);
  static __device__ __forceinline__ int Place(int i) { return i + i / kRows * kGap; }
  float q[kNumbers];
  float k[kNumbers];
  float decays[kNumbers];  // by row of S; without them, the first one is for all rows
  float beta;
};

// The part of a block: a value head.
template <RecurrentRule kRule, class Inputs>
struct Head {
  static constexpr bool kDelta =
      kRule == RecurrentRule::kDelta || kRule == RecurrentRule::kChannelDelta;
  static constexpr int kKeyDim = Inputs::kKeyDim;

  const Arguments& a;
  const int head;  // value head
  const int key_head;

  __device__ __forceinline__ const float* Convolved(int64_t row) const {
    return a.convolved + row * a.convolved_stride + int64_t{key_head} * a.channels;
  }

  // One warp.
  __device__ __forceinline__ void Load(int64_t row, Inputs& to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const RecurrentShape& shape = a.layer.shape;
    const float* const from = Convolved(row);
    float q_squares = 0;
    float k_squares = 0;
    for (int i = lane; i < kKeyDim; i += 32) {
      const bool inside = i < shape.key_dim;
      const float q = inside ? from[i] : 0.0f;
      const float k = inside ? from[shape.key_dim + i] : 0.0f;
      to.q[Inputs::Place(i)] = q;
      to.k[Inputs::Place(i)] = k;
      q_squares = fmaf(q, q, q_squares);
      k_squares = fmaf(k, k, k_squares);
    }
    if constexpr (kDelta) {
      const float q_scale = rsqrtf(SumOverWarp(q_squares) + kLengthEpsilon) *
                            rsqrtf(static_cast<float>(shape.key_dim));
      const float k_scale = rsqrtf(SumOverWarp(k_squares) + kLengthEpsilon);
      for (int i = lane; i < kKeyDim; i += 32) {
        to.q[Inputs::Place(i)] *= q_scale;
        to.k[Inputs::Place(i)] *= k_scale;
      }
    }
    LoadFactors(a.gates + row * a.gates_stride, row, lane, to);
  }

  __device__ __forceinline__ void LoadFactors(const __nv_bfloat16* gates,
                                              int64_t row,
                                              int lane,
                                              Inputs& to) const {
    const RecurrentLayer& layer = a.layer;
    const RecurrentShape& shape = layer.shape;
    const float rate = -expf(layer.decay[head]);
    if constexpr (kRule == RecurrentRule::kChannelDelta) {
      const int first = key_head * shape.key_dim;
      for (int i = lane; i < kKeyDim; i += 32) {
        float& decay = to.decays[Inputs::Place(i)];
        decay = 1.0f;
        if (i >= shape.key_dim) continue;
        const float gate = __bfloat162float(gates[first + i]) + layer.time_bias[first + i];
        decay = expf(rate * SoftPlus(gate));
      }
      const __nv_bfloat16* const x = a.x + row * a.x_stride;
      if (lane == 0) to.beta = Sigmoid(__bfloat162float(x[a.beta_column + head]));
    } else if (lane == 0) {
      if constexpr (kRule == RecurrentRule::kDelta) {
        const int group = a.group;
        const __nv_bfloat16* const of_key = gates + 2 * group * key_head + head % group;
        const float time = SoftPlus(__bfloat162float(of_key[group]) + layer.time_bias[head]);
        to.decays[0] = expf(rate * time);
        to.beta = Sigmoid(__bfloat162float(of_key[0]));
      } else {
        const float gate = __bfloat162float(gates[head]) * layer.time_scale;
        const float time =
            fminf(fmaxf(SoftPlus(gate + layer.time_bias[head]), layer.min_time), layer.max_time);
        to.decays[0] = expf(rate * time);
        to.beta = time;
      }
    }
  }
};

// kRows rows of a column of S, of one of the kLanes threads that have the column.
template <RecurrentRule kRule, int kRows, int kLanes>
struct Column {
  static constexpr bool kByRow = kRule == RecurrentRule::kChannelDelta;
  // Numbers of q and k that a thread has in registers, beside its column.
  static constexpr int kRowsRead = 16;
  float s[kRows];

  // Else the compiler would load all numbers of q and k early, and keep them.
  static __device__ __forceinline__ void KeepLoadsBehind() { asm volatile("" ::: "memory"); }

  static __device__ __forceinline__ float Sum(const float (&parts)[kParts]) {
    float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    if constexpr (kLanes >= 2) sum += __shfl_xor_sync(~0u, sum, 1);
    if constexpr (kLanes == 4) sum += __shfl_xor_sync(~0u, sum, 2);
    return sum;
  }

  // Σ row · S, where `row` is in shared memory.
  __device__ __forceinline__ float Product(const float* row) const {
    float parts[kParts] = {};
#pragma unroll
    for (int i = 0; i < kRows; i += kParts) {
      if (i % kRowsRead == 0) KeepLoadsBehind();
      const float4 x = *reinterpret_cast<const float4*>(row + i);
      parts[0] = fmaf(x.x, s[i], parts[0]);
      parts[1] = fmaf(x.y, s[i + 1], parts[1]);
      parts[2] = fmaf(x.z, s[i + 2], parts[2]);
      parts[3] = fmaf(x.w, s[i + 3], parts[3]);
    }
    return Sum(parts);
  }

  // `first`: the place of the first row.
  template <class Inputs>
  __device__ __forceinline__ void Update(const Inputs& in, int first, float v) {
    const float* const k = in.k + first;
    const float* const decays = in.decays + first;
    const float decay = in.decays[0];
    if constexpr (kByRow) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i % kRowsRead == 0) KeepLoadsBehind();
        s[i] *= decays[i];
      }
    }
    float change = v;
    if constexpr (kRule == RecurrentRule::kDelta) change = v - decay * Product(k);
    if constexpr (kByRow) change = v - Product(k);
    change *= in.beta;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i % kRowsRead == 0) KeepLoadsBehind();
      s[i] = fmaf(k[i], change, kByRow ? s[i] : decay * s[i]);
    }
  }
};

// Grid [value head and tile of its columns][chain].
template <RecurrentRule kRule, int kRows, int kLanes>
__global__ void __launch_bounds__(kThreads, kBlocks)
    UpdateStates(const __grid_constant__ Arguments a) {
  using Inputs = RowInputs<kRows, kLanes>;
  constexpr int kColumns = kThreads / kLanes;
  __shared__ Inputs inputs[kRowsAtOnce];
  ReleaseSuccessor();
  const RecurrentShape& shape = a.layer.shape;
  const int tiles = CeilDiv(shape.value_dim, kColumns);
  const int head = static_cast<int>(blockIdx.x) / tiles;
  const Head<kRule, Inputs> of_head = {a, head, head / a.group};
  const int column =
      static_cast<int>(blockIdx.x) % tiles * kColumns + static_cast<int>(threadIdx.x) / kLanes;
  const int first = static_cast<int>(threadIdx.x) % kLanes * kRows;  // row of S
  const bool inside = column < shape.value_dim;
  const int count = inside ? min(kRows, shape.key_dim - first) : 0;
  const uint32_t numbers = static_cast<uint32_t>(shape.key_dim * shape.value_dim);
  const uint32_t first_byte = a.states.layer + static_cast<uint32_t>(head) * numbers * kStateNumber;
  const auto first_number = static_cast<uint32_t>(first * shape.value_dim + column);
  const int v_channel = a.first_value_channel + head % a.group * shape.value_dim + column;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Column<kRule, kRows, kLanes> state;
  const int begin = a.states.chain_starts[blockIdx.y];
  const int end = a.states.chain_starts[blockIdx.y + 1];
  for (int index = begin; index < end; ++index) {
    const StateRows rows = a.states.rows[index];
#pragma unroll
    for (int i = 0; i < kRows; ++i) state.s[i] = 0.0f;
    if (rows.before >= 0) {
      const StateNumbers from(a.states, rows.before, first_byte, numbers);
      from.ForEach<kRows>(
          first_number, shape.value_dim, count, [&](int i, float number) { state.s[i] = number; });
    }
    // The kernels before this one in the step do not write this part of states.
    if (index == begin) WaitForPredecessor();
    for (int done = 0; done < rows.row_count; done += kRowsAtOnce) {
      const int some = min(kRowsAtOnce, rows.row_count - done);
      __syncthreads();  // all have read the inputs before
      for (int i = warp; i < some; i += kWarps) {
        of_head.Load(rows.first_row + done + i, inputs[i]);
      }
      __syncthreads();
      for (int i = 0; i < some; ++i) {
        const int64_t row = rows.first_row + done + i;
        const float v = inside ? of_head.Convolved(row)[v_channel] : 0.0f;
        if (rows.after >= 0) state.Update(inputs[i], Inputs::Place(first), v);
        const float out = state.Product(inputs[i].q + Inputs::Place(first));
        if (inside && first == 0) {
          a.out[row * a.out_stride + int64_t{head} * shape.value_dim + column] = out;
        }
      }
    }
    if (rows.after < 0) continue;
    const StateNumbers to(a.states, rows.after, first_byte, numbers);
    to.ForEach<kRows>(
        first_number, shape.value_dim, count, [&](int i, float& number) { number = state.s[i]; });
  }
}

template <RecurrentRule kRule, int kRows, int kLanes>
cudaError_t Launch(const Arguments& a, int chains, cudaStream_t stream) {
  const RecurrentShape& shape = a.layer.shape;
  const int tiles = CeilDiv(shape.value_dim, kThreads / kLanes);
  const dim3 grid(static_cast<unsigned>(shape.value_heads * tiles), static_cast<unsigned>(chains));
  return LaunchOverlapped(UpdateStates<kRule, kRows, kLanes>, grid, dim3(kThreads), 0, stream, a);
}

template <RecurrentRule kRule>
cudaError_t LaunchFor(const Arguments& a, int chains, cudaStream_t stream) {
  const int32_t key_dim = a.layer.shape.key_dim;
  if (key_dim <= 32) return Launch<kRule, 32, 1>(a, chains, stream);
  if (key_dim <= 64) return Launch<kRule, 64, 1>(a, chains, stream);
  if (key_dim <= 128) return Launch<kRule, 64, 2>(a, chains, stream);
  return Launch<kRule, kMaxStateRows / 4, 4>(a, chains, stream);
}

}  // namespace

cudaError_t LaunchUpdateStates(const UpdateStatesOp& op,
                               const StateLayout& states,
                               const KvView& kv,
                               cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  if (shape.key_dim > kMaxStateRows) return cudaErrorNotSupported;
  const Arguments a = {.states = StatesOf(shape, op.layer.layer, states, kv),
                       .layer = op.layer,
                       .beta_column = ColumnsOf(shape).beta,
                       .group = shape.group(),
                       .channels = shape.channels(),
                       .first_value_channel = shape.first_value_channel(),
                       .convolved = reinterpret_cast<const float*>(op.convolved.data),
                       .convolved_stride = op.convolved.stride,
                       .x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                       .x_stride = op.x.stride,
                       .gates = reinterpret_cast<const __nv_bfloat16*>(op.gates.data),
                       .gates_stride = op.gates.stride,
                       .out = reinterpret_cast<float*>(op.out.data),
                       .out_stride = op.out.stride};
  switch (shape.rule) {
    case RecurrentRule::kDelta:
      return LaunchFor<RecurrentRule::kDelta>(a, states.chains, stream);
    case RecurrentRule::kChannelDelta:
      return LaunchFor<RecurrentRule::kChannelDelta>(a, states.chains, stream);
    case RecurrentRule::kStateSpace:
      return LaunchFor<RecurrentRule::kStateSpace>(a, states.chains, stream);
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return cudaErrorNotSupported;
}

}  // namespace baton::cuda
