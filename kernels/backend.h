#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/dma.h"
#include "kernels/ops.h"

namespace baton {

inline constexpr std::string_view kCpu = "cpu";

struct BackendOptions {
  std::string device{kCpu};  // "cpu" or "cuda:N"
  int threads = 1;           // threads of the CPU backend; on a GPU, threads that load weights
  // The instruction set of the CPU backend's kernels: "auto" (the best one that the processor has),
  // "portable", or one of those of the processor (Name(CpuIsa)). All compute the same bits.
  std::string cpu_isa = "auto";
  // GPU: a row's bits do not depend on which other rows are in the step. On the CPU they never do.
  bool deterministic = false;
  // GPU of sm_89 or newer: the weights of the layers' GEMMs are stored in FP8 (E4M3), with a scale
  // for each output; embedding, head, norms and routers stay bf16. This lowers the quality of
  // answers (kernels/cuda/README.md).
  bool fp8_weights = false;
  // GPU: only kernels that need nothing newer than sm_80 run.
  bool portable_kernels = false;
  // The path of the CUDA backend's shared object. Empty: libbaton_cuda.so beside this program, or
  // in
  // ../lib or ../bin.
  std::string cuda_library;
  // GPU: the folder that keeps choices among kernels, which are made by timing, for the next start.
  // Empty: they are not kept.
  std::string kernel_cache = {};
  // The groups of ranks in which this rank computes; they outlive the backend.
  RankGroups groups = {};
};

// A device and its Ops.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() = 0;
  virtual Ops& ops() = 0;
  // The device's Dma, through which KV transports access its memory; null when it is host memory.
  virtual Dma* dma() = 0;
};

// Opens the backend of a device. Errors: InvalidArgument for a name that is not a device's or an
// instruction set's; FailedPrecondition for an instruction set that the processor does not have;
// NotFound when the GPU or the backend's shared object is missing; FailedPrecondition when this
// build does not support the GPU or the driver, or the shared object has another version than this
// program; for groups of several ranks on GPUs, NotFound when NCCL is missing, and the errors of
// its start.
StatusOr<std::unique_ptr<Backend>> OpenBackend(const BackendOptions& options);

// The function that the CUDA backend's shared object exports under kOpenCudaSymbol. `version` must
// be kBackendVersion, because program and shared object are built together. Sets `out`.
using OpenCudaFunction = Status (*)(std::string_view version,
                                    int index,
                                    const BackendOptions& options,
                                    std::unique_ptr<Backend>& out);
inline constexpr char kOpenCudaSymbol[] = "BatonOpenCuda";
inline constexpr std::string_view kBackendVersion = "8 " __VERSION__;

}  // namespace baton
