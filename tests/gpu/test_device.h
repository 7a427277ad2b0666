#pragma once

#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/step/cuda_options.h"

namespace baton::cuda {

// Whether there is a GPU that can run the kernels (sm_80 or newer).
bool HaveGpu();

// Those of the current device, which must be one that the tests can use. With the environment
// variable BATON_GPU_KERNELS=portable, only portable kernels may run.
DeviceProperties TestedDevice();

// `options` with the same choice of kernels.
CudaOptions TestedOptions(CudaOptions options);

}  // namespace baton::cuda
