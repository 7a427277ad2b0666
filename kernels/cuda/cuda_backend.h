#pragma once

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops.h"

namespace baton {

struct CudaOptions {
  // A row's bits do not depend on which other rows are in the step.
  bool deterministic = false;
  // Weights that may be are held in E4M3, and multiplied with activations in E4M3 (except single
  // rows).
  bool fp8_weights = false;
  // Decode steps run as CUDA graphs.
  bool graphs = true;
};

// The CUDA backend's Ops on `device`, which must outlive it and all matrices loaded. Errors:
// FailedPrecondition for FP8 on a GPU older than sm_89, ResourceExhausted, CUDA errors.
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(cuda::CudaDevice& device, const CudaOptions& options);

}  // namespace baton
