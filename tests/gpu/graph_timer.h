#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "common/base/status.h"

// What the benchmarks of kernels share.
namespace baton::cuda::testing {

// Ends the program when it is an error.
void Check(const Status& status);
void Check(cudaError_t error);

// Median microseconds of `runs` runs of what `body` issues on the stream.
double TimeStream(cudaStream_t stream, int runs, const std::function<void()>& body);
// The same as a CUDA graph.
double TimeGraph(cudaStream_t stream, int runs, const std::function<void()>& body);

}  // namespace baton::cuda::testing
