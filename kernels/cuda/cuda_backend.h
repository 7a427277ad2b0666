#pragma once

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/ops.h"

namespace baton {

struct CudaOptions {
  // The bits of a row's result do not depend on which other rows are in the step.
  bool deterministic = false;
  // Matrices that may be quantized are stored in FP8 (E4M3), and their GEMMs convert activations to
  // FP8, too, except for a single row.
  bool fp8_weights = false;
  // Decode steps run as CUDA graphs.
  bool graphs = true;
  // The groups of ranks in which this rank computes; they outlive the Ops.
  RankGroups groups = {};
};

// The CUDA backend's Ops on `device`, which must outlive the Ops and all matrices that they load.
// With groups, connects to the other ranks, which must do the same at the same time. Errors:
// FailedPrecondition for FP8 on a GPU older than sm_89, ResourceExhausted, CUDA errors; those of
// NcclExchange::Create.
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(cuda::CudaDevice& device, const CudaOptions& options);

}  // namespace baton
