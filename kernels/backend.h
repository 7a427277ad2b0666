#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/dma.h"
#include "kernels/ops.h"

namespace baton {

inline constexpr std::string_view kCpu = "cpu";

struct BackendOptions {
  std::string device{kCpu};  // that or "cuda:N"
  int threads = 1;           // of the CPU backend; on a GPU those that load weights
  // GPU: a row's bits do not depend on which other rows are in the step. Always so on the CPU.
  bool deterministic = false;
  // GPU of sm_89 or newer: the weights of the layers' products are held in E4M3, with a scale for
  // each output; embedding, head, norms, router and experts are not. Costs quality
  // (kernels/cuda/README.md).
  bool fp8_weights = false;
  // The shared object of the CUDA backend; empty: libbaton_cuda.so beside this program, or in
  // ../lib.
  std::string cuda_library;
};

// A device and its Ops, which go together.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual Ops& ops() = 0;
  // How KV transports reach the device's memory; null when it is the host's own.
  virtual Dma* dma() = 0;
};

// Opens the backend of a device. Errors: InvalidArgument for a name that is not a device's,
// NotFound when the GPU or the backend's shared object is missing, FailedPrecondition when the GPU,
// the driver or the shared object is of another age than this program.
StatusOr<std::unique_ptr<Backend>> OpenBackend(const BackendOptions& options);

// What the CUDA backend's shared object exports under kOpenCudaSymbol. `version` must be
// kBackendVersion: the two are built together. The backend comes in `out`.
using OpenCudaFunction = Status (*)(std::string_view version,
                                    int index,
                                    const BackendOptions& options,
                                    std::unique_ptr<Backend>& out);
inline constexpr char kOpenCudaSymbol[] = "BatonOpenCuda";
inline constexpr std::string_view kBackendVersion = "3 " __VERSION__;

}  // namespace baton
