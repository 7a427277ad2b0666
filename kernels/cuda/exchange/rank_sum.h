#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace baton::cuda {

// out = the sum of the `ranks` parts, added in float32 as a tree (TreeSum) and rounded once to the
// type of `out`, bf16 or float32. A part has the elements of `out` without gaps between rows. `out`
// may be one of the parts.
cudaError_t LaunchRankSum(const std::byte* parts,
                          int32_t ranks,
                          const Tensor& out,
                          cudaStream_t stream);

}  // namespace baton::cuda
