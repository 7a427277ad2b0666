#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/gemm/gemm_fusions.h"
#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

struct GemmOptions {
  // A row's bits do not depend on the number of rows: all kernels add in one order
  // (sequential_gemm.h). Where no algorithm of cuBLASLt does, a kernel of ours computes the GEMM.
  bool deterministic = false;
  // The folder that keeps timed choices between processes (algorithm_file.h); empty: none.
  std::string cache_folder = {};
};

// GEMMs through cuBLASLt, whose algorithms are timed once for each shape and row class, and through
// our own kernels where these are faster. Owns the cuBLASLt handle and its workspace. Used by one
// thread, on one stream.
class Gemm final : public GemmFusions {
 public:
  // For the current device.
  static StatusOr<std::unique_ptr<Gemm>> Create(const DeviceProperties& device,
                                                const GemmOptions& options);
  ~Gemm() override;

  // The row classes that cover 1 … `most` rows, each as its largest number of rows. All numbers of
  // rows of a class share an algorithm.
  static std::vector<int32_t> RowClasses(int32_t most);

  // Chooses the algorithm for GEMMs of this shape and row class; times the candidates on `stream`
  // when the shape is new. Must not be called while a graph is captured. Errors: InvalidArgument
  // for a GEMM that cuBLASLt cannot compute; CUDA errors.
  Status Prepare(const GemmProblem& problem, cudaStream_t stream);
  bool deterministic() const override;
  bool SupportsFused(const GemmProblem& problem) const override;
  bool AppliesScales(const GemmProblem& problem) const override;
  // Whether Prepare has timed algorithms, because the cache did not have them.
  bool has_timed() const;
  // Adds the algorithms that were timed to the cache. Errors: the file cannot be written.
  Status WriteCache() const;
  // Whether Launch needs GemmProblem::widened.
  bool Widens(const GemmProblem& problem) const;
  // Launches a GEMM that was prepared.
  cudaError_t Launch(const GemmProblem& problem, cudaStream_t stream);

 private:
  class Impl;
  explicit Gemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
