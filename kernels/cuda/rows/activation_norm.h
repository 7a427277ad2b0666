#pragma once

#include <cuda_runtime_api.h>

#include "kernels/tensor.h"

namespace baton::cuda {

// out = x / √(mean(x²) + epsilon) · weight, for bf16 rows of any length. Sums are float32. Strides
// are multiples of 8 if the number of columns is.
cudaError_t LaunchActivationNorm(
    const Tensor& x, const float* weight, float epsilon, const Tensor& out, cudaStream_t stream);

}  // namespace baton::cuda
