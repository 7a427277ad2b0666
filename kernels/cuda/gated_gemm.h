#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gated_gemm_plan.h"
#include "kernels/cuda/product.h"

// Products with silu_mul of up to 256 rows for Hopper, of operands in bf16 or E4M3: bound by
// reading the weight or, towards 256, by tensor cores. Besides the product, cuBLASLt's way has to
// write and read gate and up.
namespace baton::cuda {

bool GatedGemmTakes(const Product& product);

// What the present device allows.
GatedLimits FindGatedLimits(int processors);

// Of a product that GatedGemmTakes. The next kernel on the stream may start early.
cudaError_t LaunchGatedGemm(const Product& product, int processors, cudaStream_t stream);
cudaError_t LaunchGatedGemm(const Product& product, const GatedPlan& plan, cudaStream_t stream);

}  // namespace baton::cuda
