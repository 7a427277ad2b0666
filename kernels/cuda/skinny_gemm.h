#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/product.h"
#include "kernels/cuda/skinny_gemm_plan.h"

namespace baton::cuda {

// Whether LaunchSkinnyGemm can do `product`, on a device of compute capability 9.0: at most 64
// rows, k in whole pieces of 64, n of 16 (32 with silu_mul), 16-byte aligned x, weight and
// norm_weight.
bool SkinnyGemmTakes(const Product& product);

// A product of few rows: bound by reading the weight once. The weight streams through a ring of
// shared memory that fills before the predecessor has finished. A row's bits depend on the number
// of processors, not on the other rows nor on their number.
cudaError_t LaunchSkinnyGemm(const Product& product, int processors, cudaStream_t stream);

// The same with a plan for this product and device.
cudaError_t LaunchSkinnyGemm(const Product& product,
                             const SkinnyGemmPlan& plan,
                             cudaStream_t stream);

// What the current device allows, of which `processors` multiprocessors are to be used.
SkinnyGemmLimits FindSkinnyGemmLimits(int processors);

}  // namespace baton::cuda
