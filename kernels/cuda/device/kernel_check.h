#pragma once

#include <cuda_runtime_api.h>

namespace baton::cuda {

// cudaSuccess when this build has kernels for the current device;
// cudaErrorNoKernelImageForDevice when it has none.
cudaError_t CheckKernels();

}  // namespace baton::cuda
