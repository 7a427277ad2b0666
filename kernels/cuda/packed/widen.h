#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/packed/packed_format.h"

namespace baton::cuda {

// Writes the weights of `rows` outputs from `first_row`, a multiple of kTileOutputs, on to `out` in
// bf16, [rows][cols]. cols is a multiple of 8.
cudaError_t LaunchWiden(const PackedWeights& weights,
                        int64_t first_row,
                        int64_t rows,
                        __nv_bfloat16* out,
                        cudaStream_t stream);

}  // namespace baton::cuda
