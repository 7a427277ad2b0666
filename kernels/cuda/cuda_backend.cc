#include "kernels/cuda/cuda_backend.h"

#include "kernels/cuda/step/cuda_ops.h"

namespace baton {

StatusOr<std::unique_ptr<Ops>> MakeCudaOps(cuda::CudaDevice& device, const CudaOptions& options) {
  BATON_ASSIGN_OR_RETURN(auto ops, cuda::CudaOps::Create(device, options));
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace baton
