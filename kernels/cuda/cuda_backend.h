#pragma once

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"

namespace baton {

struct CudaOptions {
  // A row's bits do not depend on which other rows are in the step.
  bool deterministic = false;
  // Decode steps run as CUDA graphs.
  bool graphs = true;
};

// The CUDA backend's Ops on `device`, which must outlive it and all matrices loaded. Errors:
// ResourceExhausted, CUDA errors.
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(cuda::CudaDevice& device, const CudaOptions& options);

}  // namespace baton
