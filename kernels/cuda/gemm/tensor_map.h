#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

// Tensor maps: descriptions of matrices for the Tensor Memory Accelerator (TMA), which copies boxes
// of a matrix to shared memory in the 128-byte swizzle that WGMMA reads (hopper.cuh). A matrix
// [rows][k] is described as [span][row][numbers of a span]; a span is 128 bytes of k.
namespace baton::cuda {

inline constexpr int32_t kSpanBytes = 128;
inline constexpr int32_t kSpanNumbers = 64;  // numbers of a span in bf16
inline constexpr int32_t kSpanSteps = 4;     // WGMMAs along a span, of 32 bytes each

// Bytes of a number of either operand. The GEMMs that use TMA have operands of one type.
constexpr int32_t NumberBytes(const GemmProblem& problem) {
  return problem.weight_dtype == DType::kFp8 && !problem.packed.is_packed() ? 1 : 2;
}
constexpr int32_t SpanNumbers(const GemmProblem& problem) {
  return kSpanBytes / NumberBytes(problem);
}

struct MatrixView {
  const void* data = nullptr;
  int32_t rows = 0;
  int64_t row_bytes = 0;  // a multiple of kSpanBytes
  int64_t stride = 0;     // between rows, in bytes
};

constexpr MatrixView WeightOf(const GemmProblem& problem) {
  const int64_t row_bytes = int64_t{problem.k} * NumberBytes(problem);
  return {problem.weight, problem.n, row_bytes, row_bytes};
}
constexpr MatrixView XOf(const GemmProblem& problem) {
  const int32_t bytes = NumberBytes(problem);
  return {problem.x, problem.rows, int64_t{problem.k} * bytes, problem.x_stride * bytes};
}

// The part of a matrix that one TMA load copies.
struct Box {
  int32_t rows = 8;
  int32_t spans = 1;
};

// Describes `matrix` for loads of `box`. Numbers outside the matrix are read as zeros. Errors:
// NotSupported when the driver has no such function; InvalidValue when the matrix or the box cannot
// be described.
cudaError_t MakeTensorMap(const MatrixView& matrix, const Box& box, CUtensorMap* map);

inline constexpr int32_t kMixedRows = 32;

// As MakeTensorMap, for loads of one span of `box_rows` rows, a multiple of kMixedRows. The rows of
// each kMixedRows rows of the matrix are loaded in another order: row 8q + 2j + b becomes row
// 8j + 2q + b, for q and j below 4 and b below 2. As columns of WGMMA's accumulators (wgmma.cuh),
// eight neighbouring rows of the matrix then belong to one thread. The matrix must have a multiple
// of kMixedRows rows. TmaLoadMixedMulticast loads from the map.
cudaError_t MakeMixedTensorMap(const MatrixView& matrix, int32_t box_rows, CUtensorMap* map);

// Tokens of bf16 in blocks. The tokens of a block lie one behind the other.
struct PagedView {
  const void* data = nullptr;
  int64_t token_bytes = 0;  // a multiple of kSpanBytes
  int32_t block_tokens = 0;
  int64_t block_stride = 0;  // in bytes
  int32_t blocks = 0;
};

// As MakeTensorMap, for loads of all spans of `box_tokens` tokens of one block: [span][token][128
// bytes] in shared memory. The tokens of blocks that do not exist are read as zeros. TmaLoadPaged
// loads from the map, at (token, block).
cudaError_t MakePagedTensorMap(const PagedView& view, int32_t box_tokens, CUtensorMap* map);

}  // namespace baton::cuda
