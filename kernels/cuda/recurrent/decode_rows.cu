#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/bulk_store.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/recurrent/decode_inputs.cuh"
#include "kernels/cuda/recurrent/recurrent_kernels.h"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// A recurrent layer of sequences with one row each: the convolution, the update of S, the norm and
// the gate. A thread block has a value head of a chain. Bulk copies bring its S into shared memory
// and back, and three thread blocks of an SM overlap them. Computes the bits of the kernels that
// walk rows (convolve.cu, update_states.cu, finish_rows.cu).
namespace baton::cuda {
namespace {

constexpr int kDim = kDecodeDim;
constexpr int kBlocks = 3;  // of an SM: as many as have room for S in shared memory
constexpr uint32_t kMatrixBytes = kDim * kDim * kStateNumber;

struct Shared {
  DecodeInputs inputs;
  float products[kDecodeWarps][kDim];  // q S of the rows of each warp
  float found[kDecodeWarps][kDim];     // k S
  float squares[kDim / 32];
  uint64_t barrier;
};

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ float4& Vector(float& x) {
  return reinterpret_cast<float4&>(x);
}
__device__ __forceinline__ float4 Add(float4 x, float4 y) {
  return {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
}
__device__ __forceinline__ float4 Multiply(float x, float4 y) {
  return {x * y.x, x * y.y, x * y.z, x * y.w};
}
__device__ __forceinline__ float4 MultiplyAdd(float x, float4 y, float4 z) {
  return {fmaf(x, y.x, z.x), fmaf(x, y.y, z.y), fmaf(x, y.z, z.z), fmaf(x, y.w, z.w)};
}

// Calls body(bytes before it, address, bytes) for the piece of a head's S in each arena block.
template <class Body>
__device__ __forceinline__ void ForPieces(const StateArguments& a,
                                          int32_t table,
                                          uint32_t first,
                                          const Body& body) {
  for (uint32_t done = 0; done < kMatrixBytes;) {
    const uint32_t in_block = a.block_bytes - (first + done) % a.block_bytes;
    const uint32_t bytes = min(in_block, kMatrixBytes - done);
    body(done, &NumberAt(a, table, first + done), bytes);
    done += bytes;
  }
}

// S of a value head in shared memory, and what the thread block computes with it. A warp has 16
// rows of S, and a lane four columns.
template <RecurrentRule kRule>
class Matrix {
 public:
  static constexpr bool kByRow = kRule == RecurrentRule::kChannelDelta;

  __device__ __forceinline__ Matrix(float* numbers, Shared& shared)
      : numbers_(numbers),
        of_thread_(numbers + DecodeRowOf(Warp(), 0) * kDim + Column()),
        shared_(shared) {}

  // One thread.
  __device__ __forceinline__ void Load(const StateArguments& a,
                                       int32_t table,
                                       uint32_t first) const {
    const uint32_t barrier = SharedAddress(&shared_.barrier);
    ArriveExpectTx(barrier, kMatrixBytes);
    ForPieces(a, table, first, [&](uint32_t done, const void* from, uint32_t bytes) {
      BulkCopy(SharedAddress(numbers_) + done, from, bytes, barrier);
    });
  }
  // One thread, after all threads have ordered their writes before bulk copies.
  __device__ __forceinline__ void Store(const StateArguments& a,
                                        int32_t table,
                                        uint32_t first) const {
    ForPieces(a, table, first, [&](uint32_t done, void* to, uint32_t bytes) {
      BulkStore(to, SharedAddress(numbers_) + done, bytes);
    });
    CommitBulkStores();
  }

  __device__ __forceinline__ void Clear() const {
#pragma unroll
    for (int i = 0; i < kDecodeWarpRows; ++i) Row(i) = {};
  }

  // S = decay · S + k ⊗ beta · (v − kᵀ S · decay), if the row `updates` it. Then writes qᵀ S of
  // each warp's rows to shared memory.
  __device__ __forceinline__ void Run(bool updates) const {
    const DecodeInputs& in = shared_.inputs;
    const float* const q = in.q + Warp() * kDecodeWarpRows;
    const float* const k = in.k + Warp() * kDecodeWarpRows;
    const float* const decays = in.decays + Warp() * kDecodeWarpRows;
    float4 sum = {};
    if (updates) {
      const float decay = in.decays[0];
      const float4 change = Change();
#pragma unroll
      for (int i = 0; i < kDecodeWarpRows; ++i) {
        const float4 kept = Multiply(kByRow ? decays[i] : decay, Row(i));
        const float4 number = MultiplyAdd(k[i], change, kept);
        Row(i) = number;
        sum = MultiplyAdd(q[i], number, sum);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kDecodeWarpRows; ++i) sum = MultiplyAdd(q[i], Row(i), sum);
    }
    Vector(shared_.products[Warp()][Column()]) = sum;
  }

 private:
  static __device__ __forceinline__ int Warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  static __device__ __forceinline__ int Column() {
    return static_cast<int>(threadIdx.x) % 32 * 4;
  }
  // beta · (v − kᵀ S · decay) of the thread's columns.
  __device__ __forceinline__ float4 Change() const {
    const DecodeInputs& in = shared_.inputs;
    const float* const k = in.k + Warp() * kDecodeWarpRows;
    const float* const decays = in.decays + Warp() * kDecodeWarpRows;
    float4 sum = {};
#pragma unroll
    for (int i = 0; i < kDecodeWarpRows; ++i) {
      sum = MultiplyAdd(k[i], kByRow ? Multiply(decays[i], Row(i)) : Row(i), sum);
    }
    Vector(shared_.found[Warp()][Column()]) = sum;
    __syncthreads();
    float4 halves[kDecodeHalves];
#pragma unroll
    for (int i = 0; i < kDecodeHalves; ++i) {
      const auto part = [&](int j) {
        return Vector(shared_.found[i * kDecodeParts + j][Column()]);
      };
      halves[i] = Add(Add(part(0), part(1)), Add(part(2), part(3)));
    }
    const float4 v = *reinterpret_cast<const float4*>(in.v + Column());
    const float decay = kByRow ? 1.0f : in.decays[0];
    return Multiply(in.beta, MultiplyAdd(-decay, Add(halves[0], halves[1]), v));
  }
  // The thread's columns of a row of its warp.
  __device__ __forceinline__ float4& Row(int i) const {
    return Vector(of_thread_[i * kDecodeParts * kDim]);
  }

  float* const numbers_;
  float* const of_thread_;
  Shared& shared_;
};

// The sum of the warps' products for a column.
__device__ __forceinline__ float Output(const Shared& shared, int column) {
  float halves[kDecodeHalves];
#pragma unroll
  for (int i = 0; i < kDecodeHalves; ++i) {
    const auto part = [&](int j) { return shared.products[i * kDecodeParts + j][column]; };
    halves[i] = (part(0) + part(1)) + (part(2) + part(3));
  }
  return halves[0] + halves[1];
}

// One row of a value head. `parity` is that of the barrier; all threads call it.
template <RecurrentRule kRule>
__device__ __forceinline__ void RunRow(const DecodeRowsArguments& a,
                                       const StateRows& rows,
                                       int head,
                                       const Matrix<kRule>& matrix,
                                       Shared& shared,
                                       uint32_t& parity) {
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t first = a.states.layer + static_cast<uint32_t>(head) * kMatrixBytes;
  if (rows.before >= 0) {
    if (thread == 0) matrix.Load(a.states, rows.before, first);
  } else {
    matrix.Clear();
  }
  const DecodeInputsOf<kRule> inputs(a, rows, head);
  inputs.Make(shared.inputs);
  float z = 0;
  float norm = 0;
  if (thread < kDim) {
    norm = a.layer.norm[thread];
    if constexpr (kRule == RecurrentRule::kDelta) {
      z = __bfloat162float(a.x[rows.first_row * a.x_stride + inputs.z_column() + thread]);
    }
  }
  __syncthreads();
  if (rows.before >= 0) {
    WaitBarrier(SharedAddress(&shared.barrier), parity);
    parity ^= 1;
  }
  matrix.Run(rows.after >= 0);
  FenceAsyncProxy();
  __syncthreads();
  if (rows.after >= 0 && thread == 0) matrix.Store(a.states, rows.after, first);
  float value = 0;
  if (thread < kDim) {
    value = Output(shared, thread);
    const float squares = SumOverWarp(value * value);
    if (thread % 32 == 0) shared.squares[thread / 32] = squares;
  }
  __syncthreads();
  if (thread < kDim) {
    const int lane = thread % 32;
    const float squares = SumOverWarp(lane < kDim / 32 ? shared.squares[lane] : 0.0f);
    value *= rsqrtf(squares / static_cast<float>(kDim) + a.layer.norm_epsilon) * norm;
    if constexpr (kRule == RecurrentRule::kDelta) value *= Silu(z);
    a.out[rows.first_row * a.out_stride + head * kDim + thread] = __float2bfloat16(value);
  }
}
#endif

// Grid [value head][chain].
template <RecurrentRule kRule>
__global__ void __launch_bounds__(kDecodeThreads, kBlocks)
    DecodeRows(const __grid_constant__ DecodeRowsArguments a) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) float numbers[];
  __shared__ Shared shared;
  ReleaseSuccessor();
  const int chain = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  // Nearly always, this is the only sequence of the chain: loaded before the chain's place is
  // known.
  StateRows rows = a.states.rows[chain];
  int begin = a.states.chain_starts[chain];
  const int end = a.states.chain_starts[chain + 1];
  if (threadIdx.x == 0) {
    InitBarrier(SharedAddress(&shared.barrier), 1);
    FenceBarrierInit();
  }
  __syncthreads();
  const Matrix<kRule> matrix(numbers, shared);
  uint32_t parity = 0;
  int heads = 1;
  if (end - begin > 1) {
    // The value heads of a key head read the same inputs of the convolution. A later sequence of
    // the chain may overwrite them, so one thread block computes all of these heads in order.
    heads = a.group;
    if (head % a.group != 0) begin = end;
  }
  for (int index = begin; index < end; ++index) {
    if (index != chain) rows = a.states.rows[index];
    for (int i = 0; i < heads; ++i) {
      RunRow<kRule>(a, rows, head + i, matrix, shared, parity);
      if (end - begin > 1) WaitBulkStores();
      if (end - begin > 1) __syncthreads();
    }
  }
  WaitBulkStoresRead();
#endif
}

template <RecurrentRule kRule>
cudaError_t Launch(const DecodeRowsArguments& a, int chains, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.layer.shape.value_heads), static_cast<unsigned>(chains));
  cudaError_t error = cudaFuncSetAttribute(
      DecodeRows<kRule>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMatrixBytes);
  if (error != cudaSuccess) return error;
  // All blocks of an SM must find room in its shared memory.
  error = cudaFuncSetAttribute(DecodeRows<kRule>,
                               cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  return LaunchOverlapped(DecodeRows<kRule>, grid, dim3(kDecodeThreads), kMatrixBytes, stream, a);
}

}  // namespace

cudaError_t LaunchDecodeRows(const DecodeRowsOp& op,
                             const StateLayout& states,
                             const KvView& kv,
                             cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  const DecodeRowsArguments a = {.states = StatesOf(shape, op.layer.layer, states, kv),
                                 .layer = op.layer,
                                 .columns = ColumnsOf(shape),
                                 .group = shape.group(),
                                 .channels = shape.channels(),
                                 .x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                                 .x_stride = op.x.stride,
                                 .gates = reinterpret_cast<const __nv_bfloat16*>(op.gates.data),
                                 .gates_stride = op.gates.stride,
                                 .out = reinterpret_cast<__nv_bfloat16*>(op.out.data),
                                 .out_stride = op.out.stride};
  switch (shape.rule) {
    case RecurrentRule::kDelta:
      return Launch<RecurrentRule::kDelta>(a, states.chains, stream);
    case RecurrentRule::kChannelDelta:
      return Launch<RecurrentRule::kChannelDelta>(a, states.chains, stream);
    case RecurrentRule::kStateSpace:
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return cudaErrorNotSupported;
}

}  // namespace baton::cuda
