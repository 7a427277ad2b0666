#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {

PagedKernelSet Flash2Capped(PagedForm form) {
  return SetOfForm<__nv_bfloat16, /*kCapped=*/true>(form);
}

}  // namespace baton::cuda
