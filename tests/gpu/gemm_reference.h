#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda::testing {

// About normal numbers times `scale`, of a seed.
cudaError_t FillRandom(__nv_bfloat16* to, int64_t count, uint32_t seed, float scale);

// What `product` should give, dense: out[rows][n or, with silu_mul, n / 2] in f32. `before` is what
// product.out held, with its type and stride; it counts with `accumulate` alone.
cudaError_t ReferenceGemm(const GemmProblem& problem, const void* before, float* out);

}  // namespace baton::cuda::testing
