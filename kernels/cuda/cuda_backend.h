#pragma once

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/step/cuda_options.h"
#include "kernels/ops.h"

namespace baton {

// The CUDA backend's Ops on `device`, which must outlive the Ops and all matrices that they load.
// With groups, connects to the other ranks, which must do the same at the same time. Errors:
// FailedPrecondition for FP8 on a GPU older than sm_89, ResourceExhausted, CUDA errors; those of
// GroupExchange::Create.
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(cuda::CudaDevice& device, const CudaOptions& options);

}  // namespace baton
