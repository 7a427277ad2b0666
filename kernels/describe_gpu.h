#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/cuda/table/attention_request.h"

namespace baton {

// What the kernel table may ask about the GPU `device` ("cuda:0"), through the CUDA backend's
// shared object at `cuda_library` (BackendOptions). Allocates nothing that stays. Errors: those of
// OpenBackend for a GPU.
StatusOr<cuda::DecodeLimits> DescribeGpu(std::string_view device, const std::string& cuda_library);

// The function that the shared object exports for it, under kDescribeCudaSymbol.
using DescribeCudaFunction = Status (*)(std::string_view version,
                                        int index,
                                        cuda::DecodeLimits& out);
inline constexpr char kDescribeCudaSymbol[] = "BatonDescribeCuda";

}  // namespace baton
