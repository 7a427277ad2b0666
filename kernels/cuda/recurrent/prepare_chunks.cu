#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/recurrent/channels.cuh"
#include "kernels/cuda/recurrent/chunk_kernels.h"
#include "kernels/cuda/recurrent/chunk_tiles.cuh"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/cuda/table/recurrent_request.h"

// The first kernel of the chunked form: the convolution, q, k, the factors, and U₀ and W.
namespace baton::cuda {
namespace {

constexpr int kRows = kChunkRows;
constexpr int kDim = kChunkDim;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlock = 16;          // rows of the blocks of T
constexpr int kOfLane = kDim / 32;  // channels
constexpr int kPitch = kRows + 4;   // of matrices in float32
constexpr float kLengthEpsilon = 1e-6f;

struct Arguments {
  ChunkArguments chunks;
  ChannelArguments channels;
  const __nv_bfloat16* gates;
  int64_t gates_stride;
};

using WideTile = ChunkTile<kRows, kDim, /*kPermuted=*/false>;
using SquareTile = ChunkTile<kRows, kRows, /*kPermuted=*/false>;
struct alignas(16) Square {
  float rows[kRows][kPitch];
};

struct Shared {
  WideTile k;
  Square keys;  // kᵀ k
  // T is made of L, and v is loaded when T is in bf16.
  union {
    Square lower;  // L
    struct {
      SquareTile beta;   // T β
      SquareTile decay;  // T β e^c
    } solved;
  };
  union {
    WideTile q;      // before T is made
    Square inverse;  // T
    WideTile v;
  };
  alignas(16) float decays[kRows];  // c
  alignas(16) float betas[kRows];
  alignas(16) float factors[kRows];  // β e^c
  float half;                        // c of the first 32 rows
};

__device__ __forceinline__ uint32_t ToTf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// sums += left · right, where left is 16 × 8 and right 8 × 8, in TF32.
__device__ __forceinline__ void MultiplySquares(float (&sums)[4],
                                                const float (*left)[kPitch],
                                                int left_col,
                                                const float (*right)[kPitch],
                                                int right_col) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 4;
  const int col = static_cast<int>(threadIdx.x) % 4;
  const uint32_t a[4] = {ToTf32(left[row][left_col + col]),
                         ToTf32(left[row + 8][left_col + col]),
                         ToTf32(left[row][left_col + col + 4]),
                         ToTf32(left[row + 8][left_col + col + 4])};
  const uint32_t b[2] = {ToTf32(right[col][right_col + row]),
                         ToTf32(right[col + 4][right_col + row])};
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A thread block has a chunk of a key head.
class Block {
 public:
  __device__ __forceinline__ Block(const Arguments& a, Shared& shared)
      : a_(a),
        shared_(shared),
        chunk_(static_cast<int>(blockIdx.y)),
        key_head_(static_cast<int>(blockIdx.x)),
        place_(a.chunks.chunks[chunk_]),
        rows_(a.chunks.rows[place_.sequence]) {}

  __device__ __forceinline__ void MakeKeys() {
    // Half of the warps have q, the others k.
    constexpr int kOfWarp = kRows / (kWarps / 2);
    const bool is_key = Warp() >= kWarps / 2;
    const int64_t tile = Tile(key_head_, a_.chunks.key_heads) * kDim;
    __nv_bfloat16* const to = (is_key ? a_.chunks.memory.k : a_.chunks.memory.q) + tile + Channel();
    const float factor = is_key ? 1.0f : rsqrtf(static_cast<float>(kDim));
    const int first = Warp() % (kWarps / 2) * kOfWarp;
    Convolve<kOfWarp>(is_key ? kDim : 0, first, [&](int row, const float(&numbers)[kOfLane]) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) squares = fmaf(numbers[i], numbers[i], squares);
      const float scale = rsqrtf(SumOverWarp(squares) + kLengthEpsilon) * factor;
      const uint2 packed = Pack(numbers, scale);
      *reinterpret_cast<uint2*>(to + row * kDim) = packed;
      *reinterpret_cast<uint2*>((is_key ? shared_.k : shared_.q).at(row, Channel())) = packed;
    });
  }

  __device__ __forceinline__ void MakeValues(int in_group) {
    constexpr int kOfWarp = kRows / kWarps;
    Convolve<kOfWarp>(
        2 * kDim + in_group * kDim, Warp() * kOfWarp, [&](int row, const float(&numbers)[kOfLane]) {
          *reinterpret_cast<uint2*>(shared_.v.at(row, Channel())) = Pack(numbers, 1.0f);
        });
  }

  // kᵀ k and qᵀ k of all pairs of rows.
  __device__ __forceinline__ void MultiplyKeys() {
    const int row = Warp() % 4 * 16;
    const int col = Warp() / 4 * 32;
    __nv_bfloat16* const pairs =
        a_.chunks.memory.pairs + Tile(key_head_, a_.chunks.key_heads) * kRows;
    MultiplyWithKeys(shared_.q, row, col, [&](int of_row, int of_col, float first, float second) {
      StorePair(pairs + of_row * kRows + of_col, first, second);
    });
    MultiplyWithKeys(shared_.k, row, col, [&](int of_row, int of_col, float first, float second) {
      *reinterpret_cast<float2*>(&shared_.keys.rows[of_row][of_col]) = {first, second};
    });
  }

  // c and β of a value head. Rows that the chunk does not have change nothing: both are 0.
  __device__ __forceinline__ void MakeFactors(int in_group) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kRows) return;
    const RecurrentLayer& layer = a_.chunks.layer;
    const int head = key_head_ * a_.chunks.group + in_group;
    float decay = 0;
    float beta = 0;
    if (row < place_.row_count) {
      const int group = a_.chunks.group;
      const __nv_bfloat16* const gates = a_.gates +
                                         (rows_.first_row + place_.first + row) * a_.gates_stride +
                                         2 * group * key_head_ + in_group;
      const float time = SoftPlus(__bfloat162float(gates[group]) + layer.time_bias[head]);
      decay = -expf(layer.decay[head]) * time;
      beta = Sigmoid(__bfloat162float(gates[0]));
    }
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float other = __shfl_up_sync(~0u, decay, offset);
      if (row % 32 >= offset) decay += other;
    }
    if (row == 31) shared_.half = decay;
    shared_.decays[row] = decay;
    shared_.betas[row] = beta;
  }

  // The rest of MakeFactors.
  __device__ __forceinline__ void EndFactors(int in_group) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kRows) return;
    const int head = key_head_ * a_.chunks.group + in_group;
    const float decay = shared_.decays[row] + (row >= 32 ? shared_.half : 0.0f);
    shared_.decays[row] = decay;
    shared_.factors[row] = shared_.betas[row] * __expf(decay);
    a_.chunks.memory.decays[Tile(head, a_.chunks.value_heads) + row] = decay;
  }

  // L, below its diagonal alone.
  __device__ __forceinline__ void MakeLower() {
    ForVectors([&](int row, int col) {
      if (col > row) return;
      const float decay = shared_.decays[row];
      const float beta = shared_.betas[row];
      const float4 decays = *reinterpret_cast<const float4*>(shared_.decays + col);
      const float4 keys = *reinterpret_cast<const float4*>(&shared_.keys.rows[row][col]);
      *reinterpret_cast<float4*>(&shared_.lower.rows[row][col]) = {
          beta * __expf(decay - decays.x) * keys.x,
          beta * __expf(decay - decays.y) * keys.y,
          beta * __expf(decay - decays.z) * keys.z,
          beta * __expf(decay - decays.w) * keys.w};
    });
  }

  // T = (1 + L)⁻¹, in blocks of kBlock rows: those on the diagonal by substitution, then
  // T_ij = −T_ii Σ_{j ≤ k < i} L_ik T_kj.
  __device__ __forceinline__ void Invert() {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRows) {
      const int first = thread / kBlock * kBlock;
      float column[kBlock];
#pragma unroll
      for (int i = 0; i < kBlock; ++i) {
        float sum = i == thread % kBlock ? 1.0f : 0.0f;
#pragma unroll
        for (int j = 0; j < i; ++j) {
          sum = fmaf(-shared_.lower.rows[first + i][first + j], column[j], sum);
        }
        column[i] = sum;
        shared_.inverse.rows[first + i][thread] = sum;
      }
    }
    __syncthreads();
    for (int first = kBlock; first < kRows; first += kBlock) {
      const int col = 8 * Warp();
      if (col < first) {
        float sums[4] = {};
        for (int i = col; i < first; i += 8) {
          MultiplySquares(sums, shared_.lower.rows + first, i, shared_.inverse.rows + i, col);
        }
        StoreSums(sums, 1.0f, first, col);
        __syncwarp();
        float solved[4] = {};
#pragma unroll
        for (int i = 0; i < kBlock; i += 8) {
          MultiplySquares(solved,
                          shared_.inverse.rows + first,
                          first + i,
                          shared_.inverse.rows + first + i,
                          col);
        }
        __syncwarp();
        StoreSums(solved, -1.0f, first, col);
      }
      __syncthreads();
    }
  }

  // T β and T β e^c, in bf16.
  __device__ __forceinline__ void RoundInverse() {
    ForVectors([&](int row, int col) {
      const float4 betas = *reinterpret_cast<const float4*>(shared_.betas + col);
      const float4 factors = *reinterpret_cast<const float4*>(shared_.factors + col);
      // What is above the diagonal was not written.
      const float4 of_row = *reinterpret_cast<const float4*>(&shared_.inverse.rows[row][col]);
      const float numbers[4] = {col <= row ? of_row.x : 0.0f,
                                col + 1 <= row ? of_row.y : 0.0f,
                                col + 2 <= row ? of_row.z : 0.0f,
                                col + 3 <= row ? of_row.w : 0.0f};
      StorePair(shared_.solved.beta.at(row, col), numbers[0] * betas.x, numbers[1] * betas.y);
      StorePair(shared_.solved.beta.at(row, col + 2), numbers[2] * betas.z, numbers[3] * betas.w);
      StorePair(shared_.solved.decay.at(row, col), numbers[0] * factors.x, numbers[1] * factors.y);
      StorePair(
          shared_.solved.decay.at(row, col + 2), numbers[2] * factors.z, numbers[3] * factors.w);
    });
  }

  // U₀ and W.
  __device__ __forceinline__ void Multiply(int in_group) {
    const int64_t tile = Tile(key_head_ * a_.chunks.group + in_group, a_.chunks.value_heads) * kDim;
    Multiply(shared_.solved.beta, shared_.v, a_.chunks.memory.u + tile);
    Multiply(shared_.solved.decay, shared_.k, a_.chunks.memory.w + tile);
  }

 private:
  static __device__ __forceinline__ int Warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  static __device__ __forceinline__ int Channel() {
    return static_cast<int>(threadIdx.x) % 32 * kOfLane;
  }
  // The first row of a head in the memory of all chunks.
  __device__ __forceinline__ int64_t Tile(int head, int heads) const {
    return (int64_t{chunk_} * heads + head) * kRows;
  }
  static __device__ __forceinline__ uint2 Pack(const float (&numbers)[kOfLane], float factor) {
    uint2 packed;
    reinterpret_cast<__nv_bfloat162&>(packed.x) =
        __floats2bfloat162_rn(numbers[0] * factor, numbers[1] * factor);
    reinterpret_cast<__nv_bfloat162&>(packed.y) =
        __floats2bfloat162_rn(numbers[2] * factor, numbers[3] * factor);
    return packed;
  }
  // Calls body(row, column) for the thread's vectors of four numbers of a Square.
  template <class Body>
  static __device__ __forceinline__ void ForVectors(const Body& body) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / 16) body(i + thread / 16, thread % 16 * 4);
  }
  // Writes a product of 16 × 8 numbers into T.
  __device__ __forceinline__ void StoreSums(const float (&sums)[4],
                                            float factor,
                                            int row,
                                            int col) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      shared_.inverse.rows[row + RowOfSum(i)][col + ColOfSum(i)] = factor * sums[i];
    }
  }

  // Calls body(row of the chunk, silu(convolution)) for kCount rows of the chunk from `first` on,
  // of the lane's channels behind `channel` of the key head. They are 0 where the chunk has no such
  // row. All lanes of a warp have the same rows.
  template <int kCount, class Body>
  __device__ __forceinline__ void Convolve(int channel, int first, const Body& body) {
    constexpr int kRowsAtOnce = 4;
    Channels<kOfLane, kMaxDeltaInputs, kRowsAtOnce, /*kChunked=*/true> channels(
        a_.channels, key_head_, channel + Channel());
    const int end = min(first + kCount, place_.row_count);
    if (first < end) {
      channels.Begin(rows_, place_.first + first);
      channels.Run(
          rows_,
          place_.first + first,
          place_.first + end,
          [&](int row, const float(&numbers)[kOfLane]) { body(row - place_.first, numbers); });
      // Only these threads read the state.
      if (place_.first + first == 0) channels.End(rows_);
    }
    const float zeros[kOfLane] = {};
    for (int row = max(first, end); row < first + kCount; ++row) body(row, zeros);
  }

  // Calls body(row, column, a number of left · kᵀ, the one behind it).
  template <class Body>
  __device__ __forceinline__ void MultiplyWithKeys(const WideTile& left,
                                                   int row,
                                                   int col,
                                                   const Body& body) const {
    float sums[4][4] = {};
#pragma unroll
    for (int i = 0; i < kDim; i += 16) {
      uint32_t a[4];
      LoadA(a, left, row, i);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t b[4];
        LoadBTransposed(b, shared_.k, col + 16 * j, i);
        MultiplyPair(sums[2 * j], sums[2 * j + 1], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        body(row + RowOfSum(i), col + 8 * j + ColOfSum(i), sums[j][i], sums[j][i + 1]);
      }
    }
  }

  // Writes left · right. A warp has 16 rows and 64 columns of the product.
  static __device__ __forceinline__ void Multiply(const SquareTile& left,
                                                  const WideTile& right,
                                                  __nv_bfloat16* to) {
    const int row = Warp() % 4 * 16;
    const int col = Warp() / 4 * 64;
    float sums[8][4] = {};
#pragma unroll
    for (int i = 0; i < kRows; i += 16) {
      if (i > row) break;  // above the diagonal
      uint32_t a[4];
      LoadA(a, left, row, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t b[4];
        LoadB(b, right, i, col + 16 * j);
        MultiplyPair(sums[2 * j], sums[2 * j + 1], a, b);
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        StorePair(to + (row + RowOfSum(i)) * kDim + col + 8 * j + ColOfSum(i),
                  sums[j][i],
                  sums[j][i + 1]);
      }
    }
  }

  const Arguments& a_;
  Shared& shared_;
  const int chunk_;
  const int key_head_;
  const StateChunk place_;
  const StateRows rows_;
};

// Grid [key head][chunk].
__global__ void __launch_bounds__(kThreads, 3) PrepareChunks(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) std::byte memory[];
  ReleaseSuccessor();
  WaitForPredecessor();
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  Block block(a, shared);
  block.MakeKeys();
  __syncthreads();
  block.MultiplyKeys();
  for (int i = 0; i < a.chunks.group; ++i) {
    block.MakeFactors(i);
    __syncthreads();
    block.EndFactors(i);
    __syncthreads();
    block.MakeLower();
    __syncthreads();
    block.Invert();
    block.RoundInverse();
    __syncthreads();
    block.MakeValues(i);
    __syncthreads();
    block.Multiply(i);
    __syncthreads();
  }
}

}  // namespace

cudaError_t LaunchPrepareChunks(const ChunkArguments& chunks,
                                const ChunkRowsOp& op,
                                const StateLayout& states,
                                int count,
                                const KvView& kv,
                                cudaStream_t stream) {
  const Arguments a = {.chunks = chunks,
                       .channels = ChannelsOf(op.layer, op.x, states, kv),
                       .gates = reinterpret_cast<const __nv_bfloat16*>(op.gates.data),
                       .gates_stride = op.gates.stride};
  const cudaError_t error = cudaFuncSetAttribute(
      PrepareChunks, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(chunks.key_heads), static_cast<unsigned>(count));
  return LaunchOverlapped(PrepareChunks, grid, dim3(kThreads), sizeof(Shared), stream, a);
}

}  // namespace baton::cuda
