#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda::testing {

// Fills `to` with about normally distributed numbers times `scale`, which depend on `seed`.
cudaError_t FillRandom(__nv_bfloat16* to, int64_t count, uint32_t seed, float scale);

// Computes the reference result of `problem`: out[rows][n or, with silu_mul, n / 2] in f32, dense.
// `before` holds the earlier contents of problem.out, with the same type and stride; it is read
// only with `accumulate`.
cudaError_t ReferenceGemm(const GemmProblem& problem, const void* before, float* out);

}  // namespace baton::cuda::testing
