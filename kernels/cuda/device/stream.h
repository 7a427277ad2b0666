#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

enum class StreamPriority { kLeast, kGreatest };

// Creates a stream of the current device that does not wait for the default stream. Errors: those
// of CUDA.
inline Status CreateStream(StreamPriority priority, cudaStream_t* stream) {
  int least = 0;
  int greatest = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const int chosen = priority == StreamPriority::kLeast ? least : greatest;
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, chosen));
  return OkStatus();
}

}  // namespace baton::cuda
