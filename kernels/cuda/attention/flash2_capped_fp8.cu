#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {

PagedKernelSet Flash2CappedFp8(PagedForm form) {
  return SetOfForm<Fp8, /*kCapped=*/true>(form);
}

}  // namespace baton::cuda
