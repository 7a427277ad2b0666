#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "common/base/status.h"

// Functions that the benchmarks of kernels share.
namespace baton::cuda::testing {

// Prints the error and ends the program, when there is an error.
void Check(const Status& status);
void Check(cudaError_t error);

// The median time, in microseconds, of `runs` runs of the work that `body` issues on the stream.
double TimeStream(cudaStream_t stream, int runs, const std::function<void()>& body);
// As TimeStream, with the work captured into a CUDA graph.
double TimeGraph(cudaStream_t stream, int runs, const std::function<void()>& body);

}  // namespace baton::cuda::testing
