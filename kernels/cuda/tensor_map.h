#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/product.h"

// Descriptions of matrices for the tensor memory accelerator, which copies boxes of them to shared
// memory in the 128-byte swizzle that products of matrices read (hopper.cuh). A matrix [rows][k] is
// seen as [span][row][numbers of a span].
namespace baton::cuda {

inline constexpr int32_t kSpanBytes = 128;
inline constexpr int32_t kSpanNumbers = 64;  // bf16

struct MatrixView {
  const void* data = nullptr;  // bf16
  int32_t rows = 0;
  int32_t k = 0;       // a multiple of kSpanNumbers
  int64_t stride = 0;  // of rows, in numbers
};

constexpr MatrixView WeightOf(const Product& product) {
  return {product.weight, product.n, product.k, product.k};
}
constexpr MatrixView XOf(const Product& product) {
  return {product.x, product.rows, product.k, product.x_stride};
}

// What the accelerator asks of operands, as other kernels do of theirs.
inline bool Aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

struct Box {
  int32_t rows = 8;
  int32_t spans = 1;
};

// What lies outside the matrix is read as zeros. Errors: NotSupported: the driver has no such
// function; InvalidValue: the matrix or the box cannot be described.
cudaError_t DescribeBoxes(const MatrixView& matrix, const Box& box, CUtensorMap* map);

}  // namespace baton::cuda
