#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/cpu_ops.h"

namespace baton {

StatusOr<std::unique_ptr<Ops>> MakeCpuOps(CpuDevice& device, const CpuOptions& options) {
  if (options.threads < 1 || options.threads > ThreadPool::kMaxThreads) {
    return InvalidArgument("{} compute threads; it must be between 1 and {}",
                           options.threads,
                           ThreadPool::kMaxThreads);
  }
  if (!Supported(options.isa)) {
    return InvalidArgument("this processor cannot run the {} kernels", Name(options.isa));
  }
  return std::make_unique<cpu::CpuOps>(device, options);
}

}  // namespace baton
