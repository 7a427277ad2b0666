#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Mixture-of-experts layers: routing, then two products grouped by expert. Nothing of the routing
// comes to the host. A row's bits do not depend on the other rows. Holds scratch memory; one
// thread, one stream.
class Experts final {
 public:
  static StatusOr<std::unique_ptr<Experts>> Create();
  ~Experts();

  // Makes the experts known to the device (once for each layer, kept by the router's address) and
  // room for `rows` rows. Not while a graph is captured. Errors: InvalidArgument for shapes that do
  // not fit together or sizes that are not multiples of 8; ResourceExhausted.
  StatusOr<PreparedExperts> Prepare(const ExpertArgs& args, int64_t rows);
  // `x` and `out` are [rows][hidden] in bf16, 16-byte aligned rows. Issues no more than kernels.
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
