#pragma once

#include <cuda_runtime_api.h>

namespace baton::cuda {

// Whether this build has kernels for the current device; cudaErrorNoKernelImageForDevice when not.
cudaError_t CheckKernels();

}  // namespace baton::cuda
