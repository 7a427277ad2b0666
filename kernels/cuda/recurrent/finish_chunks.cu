#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/recurrent/chunk_kernels.h"
#include "kernels/cuda/recurrent/chunk_tiles.cuh"
#include "kernels/cuda/recurrent/states.cuh"
#include "kernels/recurrent_columns.h"

// The third kernel of the chunked form: qᵀ S of each row, its norm and its gate.
namespace baton::cuda {
namespace {

constexpr int kRows = kChunkRows;
constexpr int kDim = kChunkDim;
constexpr int kThreads = 256;
constexpr int kColWarps = 2;  // warps that have the columns of the same rows
constexpr int kWarpCols = kDim / kColWarps;
constexpr int kProducts = kWarpCols / 8;

struct Arguments {
  ChunkArguments chunks;
  RecurrentColumns columns;
  const __nv_bfloat16* x;
  int64_t x_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
};

struct Shared {
  ChunkTile<kRows, kDim> q;
  ChunkTile<kRows, kDim> u;
  union {
    struct {
      ChunkTile<kDim, kDim> s;
      ChunkTile<kRows, kRows> pairs;  // q_tᵀ k_s, then e^(c_t − c_s) q_tᵀ k_s
    } inputs;
    float outputs[kRows][kDim + 4];
  };
  alignas(16) float decays[kRows];
  float squares[kColWarps][kRows];
};

// A thread block has a chunk of a value head, a warp 16 rows and half of the columns.
class Block {
 public:
  __device__ __forceinline__ Block(const Arguments& a, Shared& shared)
      : a_(a),
        shared_(shared),
        chunk_(static_cast<int>(blockIdx.y)),
        head_(static_cast<int>(blockIdx.x)),
        row_(static_cast<int>(threadIdx.x) / 32 / kColWarps * 16),
        part_(static_cast<int>(threadIdx.x) / 32 % kColWarps) {}

  __device__ __forceinline__ void Load() const {
    const ChunkMemory& memory = a_.chunks.memory;
    const int64_t keys = (int64_t{chunk_} * a_.chunks.key_heads + head_ / a_.chunks.group) * kRows;
    const int64_t values = int64_t{chunk_} * a_.chunks.value_heads + head_;
    shared_.inputs.pairs.CopyFrom<kThreads>(memory.pairs + keys * kRows, kRows);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRows / 4) {
      CopyVector(SharedAddress(shared_.decays + 4 * thread),
                 memory.decays + values * kRows + 4 * thread,
                 true);
    }
    CommitCopies();
    shared_.q.CopyFrom<kThreads>(memory.q + keys * kDim, kDim);
    shared_.inputs.s.CopyFrom<kThreads>(memory.states + values * kDim * kDim, kDim);
    shared_.u.CopyFrom<kThreads>(memory.u + values * kRows * kDim, kDim);
    CommitCopies();
  }

  __device__ __forceinline__ void WeighPairs() const {
    constexpr int kVectors = kRows / 8;
    const int col = static_cast<int>(threadIdx.x) % kVectors * 8;
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / kVectors) {
      const int row = i + static_cast<int>(threadIdx.x) / kVectors;
      float numbers[8];
      Read8(shared_.inputs.pairs.at(row, col), numbers);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float decay = __expf(shared_.decays[row] - shared_.decays[col + j]);
        numbers[j] = col + j <= row ? numbers[j] * decay : 0.0f;
      }
      Write8(shared_.inputs.pairs.at(row, col), numbers);
    }
  }

  // qᵀ S.
  __device__ __forceinline__ void Multiply() {
    const int col = part_ * kWarpCols;
#pragma unroll
    for (int j = 0; j < kProducts; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[j][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kDim; i += 16) {
      uint32_t a[4];
      LoadA(a, shared_.q, row_, i);
      MultiplyRow(a, shared_.inputs.s, i, col);
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float decay = __expf(shared_.decays[row_ + RowOfSum(i)]);
#pragma unroll
      for (int j = 0; j < kProducts; ++j) {
        sums_[j][i] *= decay;
        sums_[j][i + 1] *= decay;
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; i += 16) {
      if (i > row_) break;  // later rows
      uint32_t a[4];
      LoadA(a, shared_.inputs.pairs, row_, i);
      MultiplyRow(a, shared_.u, i, col);
    }
  }

  // The squares of the warp's columns, by row.
  __device__ __forceinline__ void AddSquares() const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kProducts; ++j) {
        squares = fmaf(sums_[j][i], sums_[j][i], squares);
        squares = fmaf(sums_[j][i + 1], sums_[j][i + 1], squares);
      }
      squares += __shfl_xor_sync(~0u, squares, 1);
      squares += __shfl_xor_sync(~0u, squares, 2);
      if (threadIdx.x % 4 == 0) shared_.squares[part_][row_ + RowOfSum(i)] = squares;
    }
  }

  __device__ __forceinline__ void ShareOutputs() const {
#pragma unroll
    for (int j = 0; j < kProducts; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        *reinterpret_cast<float2*>(
            &shared_.outputs[row_ + RowOfSum(i)][part_ * kWarpCols + 8 * j + ColOfSum(i)]) = {
            sums_[j][i], sums_[j][i + 1]};
      }
    }
  }

  __device__ __forceinline__ void Store() const {
    constexpr int kVectors = kDim / 8;
    const StateChunk place = a_.chunks.chunks[chunk_];
    const int64_t first_row = a_.chunks.rows[place.sequence].first_row + place.first;
    const int group = a_.chunks.group;
    const int col = static_cast<int>(threadIdx.x) % kVectors * 8;
    float norm[8];
    Read8(a_.chunks.layer.norm + col, norm);
    const __nv_bfloat16* const z = a_.x + first_row * a_.x_stride + a_.columns.z +
                                   head_ / group * a_.columns.value_stride + head_ % group * kDim +
                                   col;
    __nv_bfloat16* const out = a_.out + first_row * a_.out_stride + head_ * kDim + col;
#pragma unroll
    for (int i = 0; i < kRows; i += kThreads / kVectors) {
      const int row = i + static_cast<int>(threadIdx.x) / kVectors;
      if (row >= place.row_count) continue;
      const float squares = shared_.squares[0][row] + shared_.squares[1][row];
      const float scale = rsqrtf(squares / static_cast<float>(kDim) + a_.chunks.layer.norm_epsilon);
      float gates[8];
      float numbers[8];
      Read8(z + row * a_.x_stride, gates);
      Read8(&shared_.outputs[row][col], numbers);
#pragma unroll
      for (int j = 0; j < 8; ++j) numbers[j] *= scale * norm[j] * FastSilu(gates[j]);
      Write8(out + row * a_.out_stride, numbers);
    }
  }

 private:
  // Adds the products of 16 numbers of each row with rows of a tile from `first` on.
  template <class Tile>
  __device__ __forceinline__ void MultiplyRow(const uint32_t (&a)[4],
                                              const Tile& right,
                                              int first,
                                              int col) {
#pragma unroll
    for (int j = 0; j < kProducts; j += 2) {
      uint32_t b[4];
      LoadB(b, right, first, col + 8 * j);
      MultiplyPair(sums_[j], sums_[j + 1], a, b);
    }
  }

  const Arguments& a_;
  Shared& shared_;
  const int chunk_;
  const int head_;
  const int row_;
  const int part_;
  float sums_[kProducts][4];
};

// Grid [value head][chunk].
__global__ void __launch_bounds__(kThreads, 3) FinishChunks(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) std::byte memory[];
  ReleaseSuccessor();
  WaitForPredecessor();
  Block block(a, *reinterpret_cast<Shared*>(memory));
  block.Load();
  WaitCopies<1>();
  __syncthreads();
  block.WeighPairs();
  WaitCopies<0>();
  __syncthreads();
  block.Multiply();
  block.AddSquares();
  __syncthreads();
  block.ShareOutputs();
  __syncthreads();
  block.Store();
}

}  // namespace

cudaError_t LaunchFinishChunks(const ChunkArguments& chunks,
                               const ChunkRowsOp& op,
                               int count,
                               cudaStream_t stream) {
  const Arguments a = {.chunks = chunks,
                       .columns = ColumnsOf(op.layer.shape),
                       .x = reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                       .x_stride = op.x.stride,
                       .out = reinterpret_cast<__nv_bfloat16*>(op.out.data),
                       .out_stride = op.out.stride};
  const cudaError_t error = cudaFuncSetAttribute(
      FinishChunks, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(chunks.value_heads), static_cast<unsigned>(count));
  return LaunchOverlapped(FinishChunks, grid, dim3(kThreads), sizeof(Shared), stream, a);
}

}  // namespace baton::cuda
