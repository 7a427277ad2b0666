#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Mixture-of-experts layers: routing, then two GEMMs grouped by expert. Routing stays on the
// device: the host never reads its result. A row's bits do not depend on the other rows. Holds
// scratch memory. Used by one thread, on one stream.
class Experts final {
 public:
  static StatusOr<std::unique_ptr<Experts>> Create();
  ~Experts();

  // Uploads the addresses of the experts' matrices (once for each layer, which is recognised by the
  // addresses in `args`) and reserves scratch memory for `rows` rows. The experts of `args` are
  // those from number `first` on; with fewer than the router scores, the result of a row lacks the
  // others. Must not be called while a graph is captured. Errors: InvalidArgument for shapes that
  // do not match or sizes that are not multiples of 8; ResourceExhausted.
  StatusOr<PreparedExperts> Prepare(const ExpertArgs& args, int64_t rows, int32_t first = 0);
  // `x` and `out` are [rows][hidden] in bf16, with rows aligned to 16 bytes. Launches kernels only,
  // so that a graph can capture it.
  cudaError_t Launch(const Tensor& x,
                     const PreparedExperts& experts,
                     const Tensor& out,
                     cudaStream_t stream);

 private:
  class Impl;
  explicit Experts(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
