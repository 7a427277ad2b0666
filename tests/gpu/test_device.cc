#include "tests/gpu/test_device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string_view>

#include "common/base/check.h"

namespace baton::cuda {
namespace {

bool OnlyPortable() {
  const char* const value = std::getenv("BATON_GPU_KERNELS");
  if (value == nullptr) return false;
  const std::string_view kernels = value;
  BATON_CHECK(kernels == "auto" || kernels == "portable",
              "BATON_GPU_KERNELS is '{}'; it must be auto or portable",
              kernels);
  return kernels == "portable";
}

}  // namespace

bool HaveGpu() {
  int count = 0;
  int major = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0 &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         major >= 8;
}

DeviceProperties TestedDevice() {
  StatusOr<DeviceProperties> device = ReadDeviceProperties();
  BATON_CHECK(device.ok(), "{}", Message(device.status()));
  device->portable = OnlyPortable();
  return *device;
}

CudaOptions TestedOptions(CudaOptions options) {
  options.portable_kernels = OnlyPortable();
  return options;
}

}  // namespace baton::cuda
