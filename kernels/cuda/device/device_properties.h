#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/cuda/table/architecture.h"

namespace baton::cuda {

// Those of the current device. Errors: FailedPrecondition when it is older than sm_80, or when this
// build has no code for it; CUDA errors.
StatusOr<DeviceProperties> ReadDeviceProperties();

// The architectures for which this build has code, as CMake names them: "90a-real".
std::string_view BuiltArchitectures();

// The value of BATON_CUDA_ARCHITECTURES that makes a build with code for `architecture`.
std::string ArchitectureToBuild(int32_t architecture);

// FailedPrecondition for a GPU `name` on which no code of this build runs; `why` is CUDA's error.
Status HasNoCode(std::string_view name, int32_t architecture, std::string_view why);

// OK when the kernel table has GEMMs of FP8 weights for the device, else FailedPrecondition with
// what is missing and what would work.
Status CheckFp8Weights(const DeviceProperties& device);

}  // namespace baton::cuda
