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
inline constexpr int32_t kSpanSteps = 4;     // instructions that a product takes for it

// Of both operands of a product that our kernels take, which are of one type.
constexpr int32_t NumberBytes(const Product& product) {
  return product.weight_dtype == DType::kF8 ? 1 : 2;
}
constexpr int32_t SpanNumbers(const Product& product) {
  return kSpanBytes / NumberBytes(product);
}

struct MatrixView {
  const void* data = nullptr;
  int32_t rows = 0;
  int64_t row_bytes = 0;  // a multiple of kSpanBytes
  int64_t stride = 0;     // of rows, in bytes
};

constexpr MatrixView WeightOf(const Product& product) {
  const int64_t row_bytes = int64_t{product.k} * NumberBytes(product);
  return {product.weight, product.n, row_bytes, row_bytes};
}
constexpr MatrixView XOf(const Product& product) {
  const int32_t bytes = NumberBytes(product);
  return {product.x, product.rows, int64_t{product.k} * bytes, product.x_stride * bytes};
}

// What the accelerator asks of operands, as other kernels do of theirs.
inline bool Aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether a product's operands can be fetched in boxes of spans and multiplied where they lie: both
// in bf16, or both in E4M3 with their scales, and neither joined with a norm.
inline bool OperandsFit(const Product& product) {
  const bool quantized = product.weight_dtype == DType::kF8;
  const DType type = quantized ? DType::kF8 : DType::kBF16;
  return product.x_dtype == type && product.weight_dtype == type &&
         quantized == (product.x_scales != nullptr && product.weight_scales != nullptr) &&
         product.rows >= 1 && product.n > 0 && product.k > 0 &&
         product.k % SpanNumbers(product) == 0 && product.norm_weight == nullptr &&
         product.x_stride * NumberBytes(product) % 16 == 0 && Aligned(product.x, 16) &&
         Aligned(product.weight, 16);
}

struct Box {
  int32_t rows = 8;
  int32_t spans = 1;
};

// What lies outside the matrix is read as zeros. Errors: NotSupported: the driver has no such
// function; InvalidValue: the matrix or the box cannot be described.
cudaError_t DescribeBoxes(const MatrixView& matrix, const Box& box, CUtensorMap* map);

}  // namespace baton::cuda
