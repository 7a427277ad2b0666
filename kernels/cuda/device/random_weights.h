#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "kernels/tensor.h"

namespace baton::cuda {

// Draws the numbers of a matrix without data (HostMatrix) to out [rows][cols]. Runs on the CUDA
// stream `on`.
cudaError_t LaunchRandomWeights(const HostMatrix& matrix, __nv_bfloat16* out, cudaStream_t on);

}  // namespace baton::cuda
