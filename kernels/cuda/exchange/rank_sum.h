#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace baton::cuda {

// out = parts[0] + parts[1] + …, added in float32 in this order and rounded once to out's type,
// bf16 or float32. A part has the numbers of `out` without gaps between rows. `out` may be one of
// the parts. The sum begins with part 0, so that −0 adds nothing.
cudaError_t LaunchRankSum(const std::byte* parts,
                          int32_t ranks,
                          const Tensor& out,
                          cudaStream_t stream);

}  // namespace baton::cuda
