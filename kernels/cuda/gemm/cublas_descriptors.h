#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// The cuBLASLt descriptors of one GEMM. In cuBLAS's column-major terms outᵀ = weight · xᵀ, with the
// weight transposed.
class GemmDescriptors final {
 public:
  GemmDescriptors(const GemmProblem& problem, int32_t rows) {
    const cudaDataType_t out = problem.out_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtMatmulDescInit(&matmul_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (problem.bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const cudaDataType_t bias = CUDA_R_16BF;
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
    }
    const bool fp8 = problem.weight_dtype == DType::kFp8;
    if (fp8) {
      // Fast accumulation: the tensor cores add with fewer bits than float32.
      const int8_t fast = 1;
      Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    }
    if (problem.x_scales != nullptr) {
      const auto each_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, each_row);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, each_row);
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem.weight_scales);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem.x_scales);
    }
    const auto n = static_cast<uint64_t>(problem.n);
    const auto k = static_cast<uint64_t>(problem.k);
    const auto m = static_cast<uint64_t>(rows);
    const cudaDataType_t in = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    cublasLtMatrixLayoutInit(&weight_, in, k, n, problem.k);
    cublasLtMatrixLayoutInit(&x_, in, k, m, problem.x_stride);
    cublasLtMatrixLayoutInit(&out_, out, n, m, problem.out_stride);
  }

  cublasLtMatmulDesc_t matmul() { return &matmul_; }
  cublasLtMatrixLayout_t weight() { return &weight_; }
  cublasLtMatrixLayout_t x() { return &x_; }
  cublasLtMatrixLayout_t out() { return &out_; }

 private:
  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): a pointer is an attribute, too
    cublasLtMatmulDescSetAttribute(&matmul_, attribute, &value, sizeof(value));
  }

  cublasLtMatmulDescOpaque_t matmul_;
  cublasLtMatrixLayoutOpaque_t weight_;
  cublasLtMatrixLayoutOpaque_t x_;
  cublasLtMatrixLayoutOpaque_t out_;
};

}  // namespace baton::cuda
