#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/mma_sm90_gmma_ext.hpp>

// Hopper's products of matrices in shared memory with many columns, as CUTLASS writes their
// instructions.
namespace baton::cuda {

// The instruction of 64 rows × kColumns outputs over 16 numbers of k.
template <int kColumns>
struct MatrixProduct;

#define BATON_MATRIX_PRODUCT(columns)                                                       \
  template <>                                                                               \
  struct MatrixProduct<columns> {                                                           \
    using Instruction =                                                                     \
        cute::SM90::GMMA::MMA_64x##columns##x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K,  \
                                                               cute::SM90::GMMA::Major::K>; \
  };
BATON_MATRIX_PRODUCT(64)
BATON_MATRIX_PRODUCT(96)
BATON_MATRIX_PRODUCT(112)
BATON_MATRIX_PRODUCT(128)
BATON_MATRIX_PRODUCT(192)
BATON_MATRIX_PRODUCT(224)
BATON_MATRIX_PRODUCT(256)
#undef BATON_MATRIX_PRODUCT

// sums[64][kColumns] += left[64][16] · right[kColumns][16]ᵀ by a warp group; hopper.cuh says who
// holds which of the sums.
template <int kColumns>
__device__ __forceinline__ void MultiplyInto(float (&sums)[kColumns / 2],
                                             uint64_t left,
                                             uint64_t right) {
  using Instruction = typename MatrixProduct<kColumns>::Instruction;
  [&]<size_t... kAt>(std::index_sequence<kAt...>) {
    Instruction::fma(left, right, sums[kAt]...);
  }
  (std::make_index_sequence<kColumns / 2>());
}

}  // namespace baton::cuda
