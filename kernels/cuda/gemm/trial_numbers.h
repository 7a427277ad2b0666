#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <cstdint>

// Random numbers on the device for trials of GEMMs, and the comparison of results bit by bit.
namespace baton::cuda {

// Writes `count` numbers between -1 and 1, which depend on `seed`.
cudaError_t LaunchFillNumbers(__nv_bfloat16* to, int64_t count, uint32_t seed, cudaStream_t stream);

// The same in FP8 (E4M3).
cudaError_t LaunchFillFp8(__nv_fp8_e4m3* to, int64_t count, uint32_t seed, cudaStream_t stream);

// Sets *differs to 1 when some of the `words` words of `a` and `b` differ; else leaves it as it is.
cudaError_t LaunchFindDifference(
    const uint32_t* a, const uint32_t* b, int64_t words, uint32_t* differs, cudaStream_t stream);

}  // namespace baton::cuda
