#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace baton::cuda {

// Finds the architecture for which the code was compiled that the driver runs on the current
// device: 90 for sm_90. It is older than the device's when the driver compiles PTX of an older
// architecture, and then lacks the newer instructions. Errors: cudaErrorNoKernelImageForDevice and
// others when this build has no code that the device can run.
cudaError_t FindLoadedCode(int32_t* architecture);

// Whether a kernel may start while its predecessor drains (programmatic dependent launch): when the
// code on the GPU is that of sm_90 or newer. Older code cannot wait for its predecessor. Asked once
// for a process, because all GPUs of a process are of one kind.
bool OverlapsLaunches();

}  // namespace baton::cuda
