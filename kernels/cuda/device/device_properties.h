#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton::cuda {

// What the choice among kernels depends on: a GPU, and the code of this build that runs on it.
// Architectures are compute capabilities: 90 for sm_90.
struct DeviceProperties {
  int32_t architecture = 0;
  int32_t code_architecture = 0;  // FindLoadedCode
  int32_t sm_count = 0;
  int32_t block_shared_bytes = 0;  // the most shared memory of a thread block
  int64_t l2_bytes = 0;
  // Only kernels of KernelFamily::kPortable may run (engine.kernels).
  bool portable = false;

  bool operator==(const DeviceProperties&) const = default;
};

inline constexpr int32_t kOldestArchitecture = 80;

// Kernels by what they need of a GPU. Every op has a kernel of the first family.
enum class KernelFamily {
  kPortable,  // sm_80's instructions, and kPortableSharedBytes (launch.cuh)
  kClusters,  // clusters of thread blocks: sm_90 and newer
  kHopper,    // TMA and wgmma: sm_90a, and no newer architecture
};

bool MayRun(KernelFamily family, const DeviceProperties& device);

// Whether FP8 weights and FP8 KV caches may be used: sm_89 and newer.
bool SupportsFp8(const DeviceProperties& device);

// Those of the current device. Errors: FailedPrecondition when it is older than sm_80, or when this
// build has no code for it; CUDA errors.
StatusOr<DeviceProperties> ReadDeviceProperties();

// The architectures for which this build has code, as CMake names them: "90a-real".
std::string_view BuiltArchitectures();

// The value of BATON_CUDA_ARCHITECTURES that makes a build with code for `architecture`.
std::string ArchitectureToBuild(int32_t architecture);

// FailedPrecondition for a GPU `name` on which no code of this build runs; `why` is CUDA's error.
Status HasNoCode(std::string_view name, int32_t architecture, std::string_view why);

// OK when the device SupportsFp8, else FailedPrecondition with what is missing and what would work.
Status CheckFp8Weights(const DeviceProperties& device);

// OK when a row's bits can be kept independent of the other rows, else FailedPrecondition: without
// Hopper's kernels, cuBLASLt adds in an order that may depend on the number of rows.
Status CheckDeterministic(const DeviceProperties& device);

}  // namespace baton::cuda
