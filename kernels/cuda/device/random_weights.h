#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace baton::cuda {

// out[i] = bf16(scale · UniformWeight(stream, i)) for i < count. Runs on the CUDA stream `on`.
cudaError_t LaunchRandomWeights(
    uint64_t stream, float scale, __nv_bfloat16* out, int64_t count, cudaStream_t on);

}  // namespace baton::cuda
