#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/primitives/expert_results.h"
#include "kernels/cuda/primitives/peer_parts.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/tensor.h"

// Kernels that process each row of activations by itself. The residual stream is float32, other
// tensors are bf16. Strides are multiples of 8.
namespace baton::cuda {

// out[i] = table[tokens[i] − first_token], as float32 residual; the table has `vocabulary` rows.
// The token ChosenBefore(k) (step_input.h) stands for chosen[k]. A token outside the table gives
// −0.
cudaError_t LaunchEmbed(const __nv_bfloat16* table,
                        int64_t vocabulary,
                        int32_t first_token,
                        const int32_t* tokens,
                        const int32_t* chosen,
                        const Tensor& out,
                        cudaStream_t stream);

// residual += delta · delta_scales, if `delta` has data; then
// out = residual / √(mean(residual²) + epsilon) · weight. The result goes to `fp8_out` instead of
// `out` if `fp8_out` has data. With several parts, `delta` is the first of `delta_parts` tensors
// without gaps, `delta_part` numbers apart (0: one behind the other); their sum, as LaunchRankSum
// would store it, is added. With
// slots in `peers`, `delta` is this rank's part, without gaps: the kernel pushes the part to `to`,
// and adds the parts of the other ranks when they have arrived. If
// `expert_results` has results, `delta` has no data, and their sum is added instead. What is added
// is rounded to bf16 first, as separate ops would store it.
struct NormLaunch {
  Tensor residual;
  Tensor delta;
  ExpertResults expert_results{};
  int32_t delta_parts = 1;
  int64_t delta_part = 0;
  PeerParts peers{};
  PeerTargets to{};
  OutputScales delta_scales{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
};
cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream);
// Whether LaunchNorm can write rows like these in FP8, and add parts of other ranks to them.
bool NormReadsWholeRows(const Tensor& residual, const Tensor& delta);

// out = silu(gate) · up, with gate_up = [gate | up].
cudaError_t LaunchSiluMul(const Tensor& gate_up, const Tensor& out, cudaStream_t stream);

// `out` in bf16 = `x` in float32; both have the same rows and columns, a multiple of 8.
cudaError_t LaunchRound(const Tensor& x, const Tensor& out, cudaStream_t stream);

// out[i] = x[rows[i]]; `x` and `out` are of the same type, which may be any.
cudaError_t LaunchGather(const Tensor& x,
                         const int32_t* rows,
                         const Tensor& out,
                         cudaStream_t stream);

}  // namespace baton::cuda
