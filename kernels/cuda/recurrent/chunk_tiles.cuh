#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"

// Matrices in bf16 in shared memory, and products of them with mma.sync, for the chunked form of
// the gated delta rule (chunk_rows.h). So that ldmatrix has no bank conflicts, the vectors of 16
// bytes of a row are permuted, or a gap of one vector is behind each row. Permuted tiles take less
// memory, and their addresses more registers.
namespace baton::cuda {

template <int kRows_, int kCols_, bool kPermuted = true>
struct alignas(128) ChunkTile {
  static constexpr int kRows = kRows_;
  static constexpr int kCols = kCols_;
  static constexpr int kPitch = kPermuted ? kCols : kCols + 8;
  static_assert(!kPermuted || kCols % 64 == 0);
  __nv_bfloat16 numbers[kRows * kPitch];

  __device__ __forceinline__ __nv_bfloat16* at(int row, int col) {
    return numbers + PlaceOf(row, col);
  }
  __device__ __forceinline__ uint32_t Address(int row, int col) const {
    return SharedAddress(numbers) +
           static_cast<uint32_t>(PlaceOf(row, col)) * sizeof(__nv_bfloat16);
  }

  // Begins to copy `kRows` rows of kCols numbers, `stride` numbers apart, with all threads.
  template <int kThreads>
  __device__ __forceinline__ void CopyFrom(const __nv_bfloat16* from, int64_t stride) const {
    constexpr int kVectors = kCols / 8;
    constexpr int kRowsAtOnce = kThreads / kVectors;
    static_assert(kThreads % kVectors == 0 && kRowsAtOnce % 8 == 0 && kRows % kRowsAtOnce == 0);
    const int row = static_cast<int>(threadIdx.x) / kVectors;
    const int col = static_cast<int>(threadIdx.x) % kVectors * 8;
    from += row * stride + col;
    const uint32_t to = Address(row, col);
#pragma unroll
    for (int i = 0; i < kRows; i += kRowsAtOnce) {
      CopyVector(to + i * kPitch * sizeof(__nv_bfloat16), from + i * stride, true);
    }
  }

 private:
  static __device__ __forceinline__ int PlaceOf(int row, int col) {
    return row * kPitch + (kPermuted ? col ^ row % 8 * 8 : col);
  }
};

__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

// Operand A of 16 × 16 numbers at (row, col) of a tile.
template <class Tile>
__device__ __forceinline__ void LoadA(uint32_t (&to)[4], const Tile& tile, int row, int col) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LoadMatrices(to, tile.Address(row + lane % 16, col + lane / 16 * 8));
}
// The same of the transposed tile: A[i][j] is at (row + j, col + i).
template <class Tile>
__device__ __forceinline__ void LoadATransposed(uint32_t (&to)[4],
                                                const Tile& tile,
                                                int row,
                                                int col) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LoadTransposed(to, tile.Address(row + lane % 8 + lane / 16 * 8, col + lane / 8 % 2 * 8));
}
// Two operands B of 16 × 8 numbers, side by side, from (row, col) of a tile on.
template <class Tile>
__device__ __forceinline__ void LoadB(uint32_t (&to)[4], const Tile& tile, int row, int col) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LoadTransposed(to, tile.Address(row + lane % 16, col + lane / 16 * 8));
}
// The same of the transposed tile: B[i][j] is at (row + j, col + i).
template <class Tile>
__device__ __forceinline__ void LoadBTransposed(uint32_t (&to)[4],
                                                const Tile& tile,
                                                int row,
                                                int col) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  LoadMatrices(to, tile.Address(row + lane % 8 + lane / 16 * 8, col + lane / 8 % 2 * 8));
}

// sums += a · [two operands B].
__device__ __forceinline__ void MultiplyPair(float (&left)[4],
                                             float (&right)[4],
                                             const uint32_t (&a)[4],
                                             const uint32_t (&b)[4]) {
  MultiplyAdd<__nv_bfloat16>(left, a, b[0], b[1]);
  MultiplyAdd<__nv_bfloat16>(right, a, b[2], b[3]);
}

// The row and column of accumulator number `i` of a lane in a product of 16 × 8.
__device__ __forceinline__ int RowOfSum(int i) {
  return static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
}
__device__ __forceinline__ int ColOfSum(int i) {
  return static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

// Stores accumulators i and i + 1 of a lane, which are neighbours.
__device__ __forceinline__ void StorePair(__nv_bfloat16* to, float first, float second) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(first, second);
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of the thread's groups of copies are under way.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace baton::cuda
