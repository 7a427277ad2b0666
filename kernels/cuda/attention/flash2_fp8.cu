#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {

PagedKernelSet Flash2Fp8(PagedForm form) {
  return SetOfForm<Fp8, /*kCapped=*/false>(form);
}

}  // namespace baton::cuda
