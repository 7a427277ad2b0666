#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

// Descriptions of matrices for the tensor memory accelerator, which copies boxes of them to shared
// memory in the 128-byte swizzle that products of matrices read (hopper.cuh). A matrix [rows][k] is
// seen as [span][row][numbers of a span].
namespace baton::cuda {

inline constexpr int32_t kSpanBytes = 128;
inline constexpr int32_t kSpanNumbers = 64;  // bf16
inline constexpr int32_t kSpanSteps = 4;     // instructions that a product takes for it

// Of both operands of a product that our kernels take, which are of one type.
constexpr int32_t NumberBytes(const GemmProblem& problem) {
  return problem.weight_dtype == DType::kF8 ? 1 : 2;
}
constexpr int32_t SpanNumbers(const GemmProblem& problem) {
  return kSpanBytes / NumberBytes(problem);
}

struct MatrixView {
  const void* data = nullptr;
  int32_t rows = 0;
  int64_t row_bytes = 0;  // a multiple of kSpanBytes
  int64_t stride = 0;     // of rows, in bytes
};

constexpr MatrixView WeightOf(const GemmProblem& problem) {
  const int64_t row_bytes = int64_t{problem.k} * NumberBytes(problem);
  return {problem.weight, problem.n, row_bytes, row_bytes};
}
constexpr MatrixView XOf(const GemmProblem& problem) {
  const int32_t bytes = NumberBytes(problem);
  return {problem.x, problem.rows, int64_t{problem.k} * bytes, problem.x_stride * bytes};
}

// What the accelerator asks of operands, as other kernels do of theirs.
inline bool Aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether a product's operands can be fetched in boxes of spans and multiplied where they lie: both
// in bf16, or both in E4M3 with their scales, and neither joined with a norm.
inline bool OperandsFit(const GemmProblem& problem) {
  const bool fp8 = problem.weight_dtype == DType::kF8;
  const DType type = fp8 ? DType::kF8 : DType::kBF16;
  return problem.x_dtype == type && problem.weight_dtype == type &&
         fp8 == (problem.x_scales != nullptr && problem.weight_scales != nullptr) &&
         problem.rows >= 1 && problem.n > 0 && problem.k > 0 &&
         problem.k % SpanNumbers(problem) == 0 && problem.norm_weight == nullptr &&
         problem.x_stride * NumberBytes(problem) % 16 == 0 && Aligned(problem.x, 16) &&
         Aligned(problem.weight, 16);
}

struct Box {
  int32_t rows = 8;
  int32_t spans = 1;
};

// What lies outside the matrix is read as zeros. Errors: NotSupported: the driver has no such
// function; InvalidValue: the matrix or the box cannot be described.
cudaError_t MakeTensorMap(const MatrixView& matrix, const Box& box, CUtensorMap* map);

}  // namespace baton::cuda
