#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

struct GemmOptions {
  // A row gets the same bits for every number of rows: one algorithm per weight shape.
  bool deterministic = false;
  int architecture = 90;  // 90 for sm_90
  int sm_count = 132;
};

// Matrix products through cuBLASLt, whose algorithms are timed once for each shape and size class
// of rows, and through our own kernels where they are faster. Owns the handle and its workspace;
// one thread, one stream.
class Gemm final {
 public:
  static StatusOr<std::unique_ptr<Gemm>> Create(const GemmOptions& options);
  ~Gemm();

  // The numbers of rows, up to `most`, that get an algorithm each.
  static std::vector<int32_t> RowClasses(int32_t most);

  // Chooses the algorithm for products like this one; times the candidates on `stream` when the
  // shape is new. Not while a graph is captured. Errors: InvalidArgument for a product that
  // cuBLASLt cannot do; CUDA errors.
  Status Prepare(const GemmProblem& problem, cudaStream_t stream);
  // Whether our own kernel takes `product`, which can also do what the fields joined to a
  // GemmProblem say.
  bool SupportsFused(const GemmProblem& problem) const;
  // Whether sums are the same for every number of rows.
  bool deterministic() const;
  // Issues a prepared product.
  cudaError_t Launch(const GemmProblem& problem, cudaStream_t stream);

 private:
  class Impl;
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
