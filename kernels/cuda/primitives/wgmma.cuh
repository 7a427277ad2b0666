#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/mma_sm90_gmma_ext.hpp>

// wgmma: Hopper's matrix products of operands in shared memory, with CUTLASS's instruction
// wrappers. A warp group holds the accumulators [64][columns]. With row = 16 w + lane / 4 and, in
// each group of 8 columns, column = lane % 4 · 2, a lane of warp w holds (row, column),
// (row, column + 1), (row + 8, column), (row + 8, column + 1).
namespace baton::cuda {

// The instruction for 64 rows × kColumns columns over 32 bytes of k: 16 numbers in bf16, 32 in
// FP8.
template <int kColumns, class Number>
struct WgmmaShape;

#define BATON_WGMMA_SHAPE(columns)                                                           \
  template <>                                                                                \
  struct WgmmaShape<columns, __nv_bfloat16> {                                                \
    using Instruction =                                                                      \
        cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K,   \
                                                               cute::SM90::GMMA::Major::K>;  \
    using HeldInstruction =                                                                  \
        cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K,   \
                                                               cute::SM90::GMMA::Major::K>;  \
    using RowsInstruction =                                                                  \
        cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K,   \
                                                               cute::SM90::GMMA::Major::MN>; \
  };                                                                                         \
  template <>                                                                                \
  struct WgmmaShape<columns, __nv_fp8_e4m3> {                                                \
    using Instruction = cute::SM90::GMMA::MMA_64x##columns##x32_F32E4M3E4M3_SS_TN<>;         \
  };
BATON_WGMMA_SHAPE(8)
BATON_WGMMA_SHAPE(16)
BATON_WGMMA_SHAPE(24)
BATON_WGMMA_SHAPE(32)
BATON_WGMMA_SHAPE(48)
BATON_WGMMA_SHAPE(64)
BATON_WGMMA_SHAPE(96)
BATON_WGMMA_SHAPE(112)
BATON_WGMMA_SHAPE(128)
BATON_WGMMA_SHAPE(192)
BATON_WGMMA_SHAPE(224)
BATON_WGMMA_SHAPE(256)
#undef BATON_WGMMA_SHAPE

// Returns `value`, which is the same in all lanes of the warp, in a uniform register. WGMMA takes
// descriptors from uniform registers. To move them there takes longer than a WGMMA of few columns.
__device__ __forceinline__ uint32_t UniformInWarp(uint32_t value) {
  return __shfl_sync(~0u, value, 0);
}

// accumulators[64][kColumns] += left[64][k] · right[kColumns][k]ᵀ, by a warp group. `left` and
// `right` are descriptors that SmemDescriptor made.
template <int kColumns, class Number = __nv_bfloat16>
__device__ __forceinline__ void WgmmaMultiply(float (&accumulators)[kColumns / 2],
                                              uint64_t left,
                                              uint64_t right) {
  using Instruction = typename WgmmaShape<kColumns, Number>::Instruction;
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    Instruction::fma(left, right, accumulators[kAt]...);
  }
  (std::make_index_sequence<kColumns / 2>());
}

// As WgmmaMultiply in bf16, over 16 numbers of k, with `left` [64][16] in registers: a lane holds
// the pairs of numbers from k = lane % 4 · 2 on, of its row and of row + 8, and then those from
// k + 8 on. `keep`: whether it adds to the accumulators, or sets them.
template <int kColumns>
__device__ __forceinline__ void WgmmaMultiplyHeld(float (&accumulators)[kColumns / 2],
                                                  const uint32_t (&left)[4],
                                                  uint64_t right,
                                                  bool keep) {
  using Instruction = typename WgmmaShape<kColumns, __nv_bfloat16>::HeldInstruction;
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    Instruction::fma(left[0],
                     left[1],
                     left[2],
                     left[3],
                     right,
                     accumulators[kAt]...,
                     keep ? cute::SM90::GMMA::ScaleOut::One : cute::SM90::GMMA::ScaleOut::Zero);
  }
  (std::make_index_sequence<kColumns / 2>());
}

// accumulators[64][kColumns] += left[64][16] · right[16][kColumns] in bf16: the lines of `right` in
// shared memory are spans of its rows, 64 columns each.
template <int kColumns>
__device__ __forceinline__ void WgmmaMultiplyRows(float (&accumulators)[kColumns / 2],
                                                  uint64_t left,
                                                  uint64_t right) {
  using Instruction = typename WgmmaShape<kColumns, __nv_bfloat16>::RowsInstruction;
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    Instruction::fma(left, right, accumulators[kAt]...);
  }
  (std::make_index_sequence<kColumns / 2>());
}

}  // namespace baton::cuda
