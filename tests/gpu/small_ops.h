#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/graph/step_ops.h"

namespace baton::cuda {

// Memory for small matrices, and ops on them, for tests that do not run the ops.
class SmallOps {
 public:
  static constexpr int64_t kRows = 4;
  static constexpr int64_t kCols = 16;

  Tensor Matrix(DType dtype, int64_t rows = kRows, int64_t cols = kCols) {
    const auto bytes = static_cast<size_t>(rows * cols) * ShapeOf(dtype).bytes;
    return {Take(bytes), dtype, rows, cols, cols};
  }
  Fp8Rows Fp8(int64_t rows = kRows, int64_t cols = kCols) {
    return Fp8Rows::At(Take(Fp8Rows::Bytes(rows, cols)), rows, cols);
  }

  static MatMulOp Gemm(const Tensor& x, const Tensor& out) {
    GemmProblem problem;
    problem.x = x.data;
    problem.out = out.data;
    problem.out_dtype = out.dtype;
    problem.rows = static_cast<int32_t>(x.rows);
    problem.n = static_cast<int32_t>(out.cols);
    problem.k = static_cast<int32_t>(x.cols);
    problem.x_stride = x.stride;
    problem.out_stride = out.stride;
    return {problem};
  }
  // Of FP8 operands, without their scales.
  static MatMulOp Gemm(const Fp8Rows& x, const Tensor& out) {
    MatMulOp op = Gemm({x.data, DType::kFp8, x.rows, x.cols, x.cols}, out);
    op.problem.x_dtype = op.problem.weight_dtype = DType::kFp8;
    return op;
  }
  static RescaleOp Rescale(const Tensor& x, const Fp8Rows& operand) {
    return {x, {operand.scales, nullptr}};
  }
  static NormOp Norm(const Tensor& residual, const NormInput& input, const Tensor& out) {
    NormOp norm;
    norm.residual = residual;
    norm.input = input;
    norm.out = out;
    return norm;
  }

 private:
  std::byte* Take(size_t bytes) {
    std::byte* const at = memory_.data() + used_;
    used_ += (bytes + 255) / 256 * 256;
    return at;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(size_t{1} << 16);
  size_t used_ = 0;
};

}  // namespace baton::cuda
