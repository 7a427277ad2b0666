#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "common/base/status.h"

namespace baton::cuda {

// OK for cudaSuccess. Else a status that names `what`, the error and its meaning: ResourceExhausted
// when memory ran out, Unavailable when the device is lost to this process (for example an illegal
// address or an ECC error, after which every later call fails, too), Internal otherwise.
Status ToStatus(cudaError_t error, std::string_view what);

// Whether no further GPU work of this process can succeed after `error`.
bool IsFatal(cudaError_t error);

}  // namespace baton::cuda

#define BATON_CUDA_RETURN_IF_ERROR(expression)                       \
  do {                                                               \
    const cudaError_t baton_cuda_error = (expression);               \
    if (baton_cuda_error != cudaSuccess) {                           \
      return ::baton::cuda::ToStatus(baton_cuda_error, #expression); \
    }                                                                \
  } while (false)
