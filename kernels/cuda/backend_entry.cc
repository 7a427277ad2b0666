#include <memory>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/dma/cuda_dma.h"
#include "kernels/describe_gpu.h"

// The entry points of the shared object; see kernels/backend.h and describe_gpu.h.
namespace baton {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<cuda::CudaDevice> device,
              std::unique_ptr<cuda::CudaDma> dma,
              std::unique_ptr<Ops> ops)
      : device_(std::move(device)), dma_(std::move(dma)), ops_(std::move(ops)) {}
  Device& device() override { return *device_; }
  Ops& ops() override { return *ops_; }
  Dma* dma() override { return dma_.get(); }

 private:
  std::unique_ptr<cuda::CudaDevice> device_;
  std::unique_ptr<cuda::CudaDma> dma_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace
}  // namespace baton

namespace {

baton::Status CheckVersion(std::string_view version) {
  if (version == baton::kBackendVersion) return baton::OkStatus();
  return baton::MakeStatus(baton::StatusCode::kFailedPrecondition,
                           "the CUDA backend has version '{}' and the program has version '{}'; "
                           "they must be equal",
                           baton::kBackendVersion,
                           version);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) baton::Status BatonDescribeCuda(
    std::string_view version, int index, baton::cuda::DecodeLimits& out) {
  BATON_RETURN_IF_ERROR(CheckVersion(version));
  BATON_ASSIGN_OR_RETURN(const auto device, baton::cuda::CudaDevice::Open(index));
  out = baton::cuda::FindDecodeLimits(device->properties());
  return baton::OkStatus();
}

extern "C" __attribute__((visibility("default"))) baton::Status BatonOpenCuda(
    std::string_view version,
    int index,
    const baton::BackendOptions& options,
    std::unique_ptr<baton::Backend>& out) {
  BATON_RETURN_IF_ERROR(CheckVersion(version));
  BATON_ASSIGN_OR_RETURN(auto device, baton::cuda::CudaDevice::Open(index, options.threads));
  BATON_ASSIGN_OR_RETURN(auto dma, baton::cuda::CudaDma::Create(*device));
  BATON_ASSIGN_OR_RETURN(auto ops,
                         baton::MakeCudaOps(*device,
                                            {.deterministic = options.deterministic,
                                             .fp8_weights = options.fp8_weights,
                                             .portable_kernels = options.portable_kernels,
                                             .kernel_cache = options.kernel_cache,
                                             .groups = options.groups}));
  out = std::make_unique<baton::CudaBackend>(std::move(device), std::move(dma), std::move(ops));
  return baton::OkStatus();
}
