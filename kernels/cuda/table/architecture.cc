#include "kernels/cuda/table/architecture.h"

#include <algorithm>

namespace baton::cuda {

bool MayRun(KernelFamily family, const DeviceProperties& device) {
  switch (family) {
    case KernelFamily::kPortable:
      return device.architecture >= kOldestArchitecture;
    case KernelFamily::kFp8:
      return std::min(device.architecture, device.code_architecture) >= kFp8Architecture;
    case KernelFamily::kClusters:
      return device.code_architecture >= kHopperArchitecture && !device.portable;
    case KernelFamily::kHopper:
      // The build has no code for sm_90 without the instructions of sm_90a (BatonCuda.cmake).
      return device.architecture == kHopperArchitecture &&
             device.code_architecture == kHopperArchitecture && !device.portable;
  }
  return false;
}

std::string_view Needs(KernelFamily family) {
  switch (family) {
    case KernelFamily::kPortable:
      return "sm_80 or newer";
    case KernelFamily::kFp8:
      return "sm_89 or newer";
    case KernelFamily::kClusters:
      return "sm_90 or newer";
    case KernelFamily::kHopper:
      return "sm_90a";
  }
  return "";
}

bool SupportsFp8(const DeviceProperties& device) {
  return MayRun(KernelFamily::kFp8, device);
}

}  // namespace baton::cuda
