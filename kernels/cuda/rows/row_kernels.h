#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

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

// residual += delta; both have the same rows and columns.
cudaError_t LaunchAdd(const Tensor& residual, const Tensor& delta, cudaStream_t stream);

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
