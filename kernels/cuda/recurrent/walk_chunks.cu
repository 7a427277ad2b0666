#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrent/chunk_kernels.h"
#include "kernels/cuda/recurrent/chunk_tiles.cuh"
#include "kernels/cuda/recurrent/states.cuh"

// The second kernel of the chunked form: S at the beginning of each chunk, and U. A thread block
// walks the chunks of a sequence with 32 columns of S of a value head in registers.
namespace baton::cuda {
namespace {

constexpr int kRows = kChunkRows;
constexpr int kDim = kChunkDim;
constexpr int kCols = 32;  // columns of S of a thread block
constexpr int kThreads = 256;
constexpr int kStages = 3;  // chunks in shared memory
constexpr int kPairs = kCols / 16;
constexpr bool kPermuted = false;

struct Arguments {
  ChunkArguments chunks;
  StateArguments states;
  const int32_t* chunk_starts;
};

struct Stage {
  ChunkTile<kRows, kDim, kPermuted> w;
  ChunkTile<kRows, kDim, kPermuted> k;
  ChunkTile<kRows, kCols, kPermuted> u;
  alignas(16) float decays[kRows];
};

struct Shared {
  Stage stages[kStages];
  ChunkTile<kDim, kCols, kPermuted> s;
  ChunkTile<kRows, kCols, kPermuted> u;  // e^(c_last − c_t) u_t
};

class Block {
 public:
  __device__ __forceinline__ Block(const Arguments& a, Shared& shared)
      : a_(a),
        shared_(shared),
        head_(static_cast<int>(blockIdx.y)),
        col_(static_cast<int>(blockIdx.x) * kCols) {}

  // Begins to copy a chunk into a stage.
  __device__ __forceinline__ void Load(int chunk, Stage& to) const {
    const ChunkMemory& memory = a_.chunks.memory;
    const int64_t row = Row(chunk);
    const int64_t key_row =
        (int64_t{chunk} * a_.chunks.key_heads + head_ / a_.chunks.group) * kRows;
    to.w.CopyFrom<kThreads>(memory.w + row * kDim, kDim);
    to.k.CopyFrom<kThreads>(memory.k + key_row * kDim, kDim);
    to.u.CopyFrom<kThreads>(memory.u + row * kDim + col_, kDim);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRows / 4) {
      CopyVector(SharedAddress(to.decays + 4 * thread), memory.decays + row + 4 * thread, true);
    }
  }

  // S of the sequence before the step.
  __device__ __forceinline__ void Begin(const StateRows& rows) {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s_[j][i] = rows.before >= 0 ? NumberAt(a_.states, rows.before, ByteOf(j, i)) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void End(const StateRows& rows) const {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) NumberAt(a_.states, rows.after, ByteOf(j, i)) = s_[j][i];
    }
  }

  // Writes S, rounded, to shared memory.
  __device__ __forceinline__ void Share() const {
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        StorePair(
            shared_.s.at(16 * Warp() + RowOfSum(i), 8 * j + ColOfSum(i)), s_[j][i], s_[j][i + 1]);
      }
    }
  }

  // U = U₀ − W S, and S as it was at the beginning of the chunk, into the memory of all chunks.
  __device__ __forceinline__ void MakeChanges(int chunk, Stage& stage) const {
    __nv_bfloat16* const states = a_.chunks.memory.states +
                                  (int64_t{chunk} * a_.chunks.value_heads + head_) * kDim * kDim +
                                  col_;
    constexpr int kVectors = kCols / 8;
    const int vector = static_cast<int>(threadIdx.x) % kVectors * 8;
#pragma unroll
    for (int i = 0; i < kDim; i += kThreads / kVectors) {
      const int of_row = i + static_cast<int>(threadIdx.x) / kVectors;
      *reinterpret_cast<uint4*>(states + of_row * kDim + vector) =
          *reinterpret_cast<const uint4*>(shared_.s.at(of_row, vector));
    }
    const int row = Warp() % 4 * 16;
    const int col = Warp() / 4 * 16;
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < kDim; i += 16) {
      uint32_t a[4];
      uint32_t b[4];
      LoadA(a, stage.w, row, i);
      LoadB(b, shared_.s, i, col);
      MultiplyPair(sums[0], sums[1], a, b);
    }
    __nv_bfloat16* const changes = a_.chunks.memory.u + Row(chunk) * kDim + col_;
    const float last = stage.decays[kRows - 1];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const int of_row = row + RowOfSum(i);
        const int of_col = col + 8 * j + ColOfSum(i);
        const float2 made = __bfloat1622float2(
            *reinterpret_cast<const __nv_bfloat162*>(stage.u.at(of_row, of_col)));
        const float left = made.x - sums[j][i];
        const float right = made.y - sums[j][i + 1];
        StorePair(changes + of_row * kDim + of_col, left, right);
        const float decay = __expf(last - stage.decays[of_row]);
        StorePair(shared_.u.at(of_row, of_col), decay * left, decay * right);
      }
    }
  }

  // S = e^c_last S + Σ_t e^(c_last − c_t) k_t ⊗ u_t.
  __device__ __forceinline__ void Update(const Stage& stage) {
    const float decay = __expf(stage.decays[kRows - 1]);
#pragma unroll
    for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s_[j][i] *= decay;
    }
#pragma unroll
    for (int i = 0; i < kRows; i += 16) {
      uint32_t a[4];
      LoadATransposed(a, stage.k, i, 16 * Warp());
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        uint32_t b[4];
        LoadB(b, shared_.u, i, 16 * j);
        MultiplyPair(s_[2 * j], s_[2 * j + 1], a, b);
      }
    }
  }

 private:
  static __device__ __forceinline__ int Warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  __device__ __forceinline__ int64_t Row(int chunk) const {
    return (int64_t{chunk} * a_.chunks.value_heads + head_) * kRows;
  }
  // Where the state has accumulator i of product j.
  __device__ __forceinline__ uint32_t ByteOf(int j, int i) const {
    const int row = 16 * Warp() + RowOfSum(i);
    const int number = (head_ * kDim + row) * kDim + col_ + 8 * j + ColOfSum(i);
    return a_.states.layer + static_cast<uint32_t>(number) * kStateNumber;
  }

  const Arguments& a_;
  Shared& shared_;
  const int head_;
  const int col_;
  float s_[2 * kPairs][4];  // rows of S from 16 · Warp() on
};

// Grid [columns of S][value head][sequence].
__global__ void __launch_bounds__(kThreads) WalkChunks(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) std::byte memory[];
  ReleaseSuccessor();
  WaitForPredecessor();
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int begin = a.chunk_starts[blockIdx.z];
  const int end = a.chunk_starts[blockIdx.z + 1];
  Block block(a, shared);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (begin + i < end) block.Load(begin + i, shared.stages[i]);
    CommitCopies();
  }
  const StateRows rows = a.chunks.rows[a.chunks.chunks[begin].sequence];
  block.Begin(rows);
  for (int chunk = begin; chunk < end; ++chunk) {
    Stage& stage = shared.stages[(chunk - begin) % kStages];
    block.Share();
    WaitCopies<kStages - 2>();
    __syncthreads();
    // All threads have read the stage that this one takes.
    const int next = chunk + kStages - 1;
    if (next < end) block.Load(next, shared.stages[(next - begin) % kStages]);
    CommitCopies();
    block.MakeChanges(chunk, stage);
    __syncthreads();
    block.Update(stage);
  }
  block.End(rows);
}

}  // namespace

cudaError_t LaunchWalkChunks(const ChunkArguments& chunks,
                             const ChunkRowsOp& op,
                             const StateLayout& states,
                             const StateChunks& layout,
                             const KvView& kv,
                             cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  const Arguments a = {.chunks = chunks,
                       .states = StatesOf(shape, op.layer.layer, states, kv),
                       .chunk_starts = layout.d_chunk_starts};
  const cudaError_t error =
      cudaFuncSetAttribute(WalkChunks, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  const dim3 grid(kDim / kCols,
                  static_cast<unsigned>(shape.value_heads),
                  static_cast<unsigned>(layout.sequences));
  return LaunchOverlapped(WalkChunks, grid, dim3(kThreads), sizeof(Shared), stream, a);
}

}  // namespace baton::cuda
