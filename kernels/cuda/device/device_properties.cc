#include "kernels/cuda/device/device_properties.h"

#include <cuda_runtime_api.h>

#include <array>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/primitives/loaded_code.h"
#include "kernels/cuda/table/kernel_table.h"

namespace baton::cuda {
namespace {

// An architecture for which the backend is compiled. Its machine code also runs on later
// architectures of the same major number, except that of sm_90a.
struct Target {
  int32_t architecture;
  std::string_view build;
};
constexpr std::array kTargets = {Target{80, "80-real"},
                                 Target{86, "86-real"},
                                 Target{89, "89-real"},
                                 Target{kHopperArchitecture, "90a-real"},
                                 Target{100, "100-real"},
                                 Target{103, "103-real"},
                                 Target{120, "120-real"}};

}  // namespace

StatusOr<DeviceProperties> ReadDeviceProperties() {
  int index = 0;
  cudaDeviceProp found;
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDevice(&index));
  BATON_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&found, index));
  DeviceProperties device;
  device.architecture = 10 * found.major + found.minor;
  device.sm_count = found.multiProcessorCount;
  device.block_shared_bytes = static_cast<int32_t>(found.sharedMemPerBlockOptin);
  device.l2_bytes = found.l2CacheSize;
  const std::string name = fmt::format("cuda:{}, a {},", index, found.name);
  if (device.architecture < kOldestArchitecture) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "{} is of sm_{}; Baton needs sm_{} or newer",
                      name,
                      device.architecture,
                      kOldestArchitecture);
  }
  if (const cudaError_t why = FindLoadedCode(&device.code_architecture); why != cudaSuccess) {
    return HasNoCode(name, device.architecture, cudaGetErrorName(why));
  }
  return device;
}

std::string_view BuiltArchitectures() {
  return BATON_BUILT_ARCHITECTURES;
}

std::string ArchitectureToBuild(int32_t architecture) {
  // Every driver compiles PTX of an older architecture.
  std::string build = "80-virtual";
  for (const Target& target : kTargets) {
    const bool same_major = target.architecture / 10 == architecture / 10;
    if (target.architecture == architecture || (same_major && target.architecture < architecture &&
                                                target.architecture != kHopperArchitecture)) {
      build = target.build;
    }
  }
  return build;
}

Status HasNoCode(std::string_view name, int32_t architecture, std::string_view why) {
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "{} is of sm_{}, and this CUDA backend has code for {} only ({}); use one that "
                    "was built with BATON_CUDA_ARCHITECTURES={}",
                    name,
                    architecture,
                    BuiltArchitectures(),
                    why,
                    ArchitectureToBuild(architecture));
}

Status CheckFp8Weights(const DeviceProperties& device) {
  if (MayRun(RowOf(KernelId::kCublasFp8).family, device)) return OkStatus();
  if (device.architecture < kFp8Architecture) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the GEMMs of FP8 weights need a GPU of sm_{} or newer, and this one is "
                      "sm_{}; without fp8_weights they run in bf16",
                      kFp8Architecture,
                      device.architecture);
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "the GEMMs of FP8 weights need code for sm_{} or newer, and this CUDA backend "
                    "has code for {} only; use one that was built with "
                    "BATON_CUDA_ARCHITECTURES={}, or turn fp8_weights off",
                    kFp8Architecture,
                    BuiltArchitectures(),
                    ArchitectureToBuild(device.architecture));
}

}  // namespace baton::cuda
