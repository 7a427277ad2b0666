#include "kernels/cuda/few_rows_kernel.cuh"

namespace baton::cuda {

FewRowsKernelPointer QuantizedFewRowsKernelOf(const FewRowsPlan& plan, bool pairs) {
  return FewRowsKernelOf<__nv_fp8_e4m3>(plan, pairs);
}

}  // namespace baton::cuda
