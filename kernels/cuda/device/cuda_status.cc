#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

bool IsFatal(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

Status ToStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  StatusCode code = StatusCode::kInternal;
  if (error == cudaErrorMemoryAllocation) code = StatusCode::kResourceExhausted;
  if (IsFatal(error)) code = StatusCode::kUnavailable;
  return MakeStatus(code,
                    "CUDA: {} failed: {} ({}){}",
                    what,
                    cudaGetErrorName(error),
                    cudaGetErrorString(error),
                    IsFatal(error) ? "; the device is lost to this process" : "");
}

}  // namespace baton::cuda
