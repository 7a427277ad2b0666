#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/rows/quantize.h"
#include "kernels/tensor.h"

// Kernels that work on each row of activations by itself. The residual stream is float32, other
// tensors are bf16; strides are multiples of 8.
namespace baton::cuda {

// out[i] = table[tokens[i]], a residual; a token outside the table gives zeros. A token of
// ChosenBefore(k) stands for chosen[k].
cudaError_t LaunchEmbed(const __nv_bfloat16* table,
                        int64_t vocabulary,
                        const int32_t* tokens,
                        const int32_t* chosen,
                        const Tensor& out,
                        cudaStream_t stream);

// residual += delta · delta_scales when `delta` has data; out = residual / √(mean(residual²) +
// epsilon) · weight, in E4M3 instead when `quantized` has data.
struct NormLaunch {
  Tensor residual;
  Tensor delta;
  OutputScales delta_scales{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
};
cudaError_t LaunchNorm(const NormLaunch& launch, cudaStream_t stream);
// Whether it can quantise rows like these.
bool NormWritesFp8(const Tensor& residual, const Tensor& delta);

// out = silu(gate) · up, with gate_up = [gate | up].
cudaError_t LaunchSiluMul(const Tensor& gate_up, const Tensor& out, cudaStream_t stream);

// out[i] = x[rows[i]], of any type.
cudaError_t LaunchGather(const Tensor& x,
                         const int32_t* rows,
                         const Tensor& out,
                         cudaStream_t stream);

}  // namespace baton::cuda
