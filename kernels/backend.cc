#include "kernels/backend.h"

#include <dlfcn.h>

#include <charconv>
#include <system_error>

#include "common/base/shared_object.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/describe_gpu.h"

namespace baton {
namespace {

constexpr std::string_view kCudaLibrary = "libbaton_cuda.so";
constexpr std::string_view kCudaPrefix = "cuda:";

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuIsa isa) : device_(fmt::format("{} {}", kCpu, Name(isa))) {}
  static StatusOr<std::unique_ptr<Backend>> Open(const CpuOptions& options) {
    auto backend = std::make_unique<CpuBackend>(options.isa);
    BATON_ASSIGN_OR_RETURN(backend->ops_, MakeCpuOps(backend->device_, options));
    return std::unique_ptr<Backend>(std::move(backend));
  }
  Device& device() override { return device_; }
  Ops& ops() override { return *ops_; }
  Dma* dma() override { return nullptr; }

 private:
  CpuDevice device_;
  std::unique_ptr<Ops> ops_;
};

// The function `symbol` of the CUDA backend's shared object at `path`.
template <class Function>
StatusOr<Function> FindCudaFunction(const std::string& path, const char* symbol) {
  BATON_ASSIGN_OR_RETURN(void* const library,
                         OpenSharedObject({.what = "the CUDA backend",
                                           .file = kCudaLibrary,
                                           .path = path,
                                           .advice = "build it with the preset cuda"}));
  const auto function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function == nullptr) {
    return MakeStatus(StatusCode::kFailedPrecondition, "the CUDA backend has no {}", symbol);
  }
  return function;
}

StatusOr<std::unique_ptr<Backend>> OpenCuda(int index, const BackendOptions& options) {
  BATON_ASSIGN_OR_RETURN(const auto open,
                         FindCudaFunction<OpenCudaFunction>(options.cuda_library, kOpenCudaSymbol));
  std::unique_ptr<Backend> backend;
  BATON_RETURN_IF_ERROR(open(kBackendVersion, index, options, backend));
  return backend;
}

// The number of the GPU.
StatusOr<int> GpuIndex(std::string_view device) {
  int index = -1;
  if (device.starts_with(kCudaPrefix)) {
    const std::string_view number = device.substr(kCudaPrefix.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error != std::errc() || end != number.data() + number.size()) index = -1;
  }
  if (index < 0) {
    return InvalidArgument("device is '{}'; it must be 'cpu' or 'cuda:N' with the GPU's number",
                           device);
  }
  return index;
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> OpenBackend(const BackendOptions& options) {
  const std::string_view device = options.device;
  if (device == kCpu && options.fp8_weights) {
    return InvalidArgument(
        "FP8 weights are for GPUs of sm_89 or newer; with device 'cpu' they must be off");
  }
  if (device == kCpu) {
    BATON_ASSIGN_OR_RETURN(const CpuIsa isa, ParseCpuIsa(options.cpu_isa));
    return CpuBackend::Open({.threads = options.threads, .isa = isa, .groups = options.groups});
  }
  BATON_ASSIGN_OR_RETURN(const int index, GpuIndex(device));
  return OpenCuda(index, options);
}

StatusOr<cuda::DecodeLimits> DescribeGpu(std::string_view device, const std::string& cuda_library) {
  BATON_ASSIGN_OR_RETURN(const int index, GpuIndex(device));
  BATON_ASSIGN_OR_RETURN(const auto describe,
                         FindCudaFunction<DescribeCudaFunction>(cuda_library, kDescribeCudaSymbol));
  cuda::DecodeLimits limits;
  BATON_RETURN_IF_ERROR(describe(kBackendVersion, index, limits));
  return limits;
}

}  // namespace baton
