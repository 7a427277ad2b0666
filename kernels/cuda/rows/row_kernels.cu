#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/rows/row_kernels.h"
#include "kernels/cuda/rows/row_threads.h"
#include "kernels/cuda/rows/silu.cuh"

namespace baton::cuda {
namespace {

__global__ void EmbedKernel(const __nv_bfloat16* table,
                            int64_t vocabulary,
                            int32_t first_token,
                            const int32_t* tokens,
                            const int32_t* chosen,
                            float* out,
                            int64_t stride,
                            int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int32_t given = tokens[blockIdx.x];
  const int32_t token = (given < 0 ? chosen[-1 - given] : given) - first_token;
  const bool known = token >= 0 && token < vocabulary;
  const __nv_bfloat16* from = table + (known ? token : 0) * static_cast<int64_t>(cols);
  float* to = out + blockIdx.x * stride;
  if (cols % 8 == 0) {
    for (int i = static_cast<int>(threadIdx.x) * 8; i < cols;
         i += static_cast<int>(blockDim.x) * 8) {
      float values[8] = {-0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f};
      if (known) Read8(from + i, values);
      Write8(to + i, values);
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(blockDim.x)) {
    to[i] = known ? __bfloat162float(from[i]) : -0.0f;
  }
}

__global__ void SiluMulKernel(const __nv_bfloat16* gate_up,
                              int64_t stride,
                              __nv_bfloat16* out,
                              int64_t out_stride,
                              int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.y;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  const __nv_bfloat16* gates = gate_up + row * stride;
  if (at >= cols) return;
  if (cols % 8 == 0) {
    float gate[8];
    float up[8];
    Read8(gates + at, gate);
    Read8(gates + cols + at, up);
#pragma unroll
    for (int i = 0; i < 8; ++i) gate[i] = SiluMul(gate[i], up[i]);
    Write8(out + row * out_stride + at, gate);
    return;
  }
  for (int i = at; i < min(at + 8, cols); ++i) {
    out[row * out_stride + i] =
        __float2bfloat16(SiluMul(__bfloat162float(gates[i]), __bfloat162float(gates[cols + i])));
  }
}

__global__ void AddKernel(
    const __nv_bfloat16* delta, int64_t delta_stride, float* residual, int64_t stride, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.y;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (at >= cols) return;
  float* const to = residual + row * stride;
  const __nv_bfloat16* const from = delta + row * delta_stride;
  if (cols % 8 == 0) {
    float sum[8];
    float added[8];
    Read8(to + at, sum);
    Read8(from + at, added);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += added[i];
    Write8(to + at, sum);
    return;
  }
  for (int i = at; i < min(at + 8, cols); ++i) to[i] += __bfloat162float(from[i]);
}

__global__ void RoundKernel(
    const float* x, int64_t stride, __nv_bfloat16* out, int64_t out_stride, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.y;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (at >= cols) return;
  float values[8];
  Read8(x + row * stride + at, values);
  Write8(out + row * out_stride + at, values);
}

// Copies rows of `units` Units. Strides are in Units.
template <class Unit>
__global__ void GatherKernel(
    const Unit* x, int64_t stride, const int32_t* rows, Unit* out, int64_t out_stride, int units) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const Unit* from = x + rows[blockIdx.x] * stride;
  Unit* to = out + blockIdx.x * out_stride;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += static_cast<int>(blockDim.x)) {
    to[i] = from[i];
  }
}

const __nv_bfloat16* In(const Tensor& tensor) {
  return reinterpret_cast<const __nv_bfloat16*>(tensor.data);
}
__nv_bfloat16* Out(const Tensor& tensor) {
  return reinterpret_cast<__nv_bfloat16*>(tensor.data);
}
float* Floats(const Tensor& tensor) {
  return reinterpret_cast<float*>(tensor.data);
}

unsigned Rows(const Tensor& tensor) {
  return static_cast<unsigned>(tensor.rows);
}

// A kernel whose threads compute 8 columns of `out` each, with the arguments (from, stride of x,
// to, stride of out, columns of out).
template <class Kernel, class From, class To>
cudaError_t LaunchVectors(
    Kernel* kernel, const Tensor& x, From* from, const Tensor& out, To* to, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  return LaunchOverlapped(kernel,
                          dim3(CeilDiv(CeilDiv(out.cols, 8), kThreads), Rows(out)),
                          dim3(kThreads),
                          0,
                          stream,
                          from,
                          x.stride,
                          to,
                          out.stride,
                          static_cast<int>(out.cols));
}

}  // namespace

cudaError_t LaunchEmbed(const __nv_bfloat16* table,
                        int64_t vocabulary,
                        int32_t first_token,
                        const int32_t* tokens,
                        const int32_t* chosen,
                        const Tensor& out,
                        cudaStream_t stream) {
  return LaunchOverlapped(EmbedKernel,
                          dim3(Rows(out)),
                          dim3(std::min(ThreadsFor(out.cols, 1), 256u)),
                          0,
                          stream,
                          table,
                          vocabulary,
                          first_token,
                          tokens,
                          chosen,
                          Floats(out),
                          out.stride,
                          static_cast<int>(out.cols));
}

cudaError_t LaunchSiluMul(const Tensor& gate_up, const Tensor& out, cudaStream_t stream) {
  return LaunchVectors(SiluMulKernel, gate_up, In(gate_up), out, Out(out), stream);
}

cudaError_t LaunchAdd(const Tensor& residual, const Tensor& delta, cudaStream_t stream) {
  if (residual.rows == 0) return cudaSuccess;
  return LaunchVectors(AddKernel, delta, In(delta), residual, Floats(residual), stream);
}

cudaError_t LaunchRound(const Tensor& x, const Tensor& out, cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  return LaunchVectors(RoundKernel, x, Floats(x), out, Out(out), stream);
}

cudaError_t LaunchGather(const Tensor& x,
                         const int32_t* rows,
                         const Tensor& out,
                         cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  const auto number = static_cast<int64_t>(ShapeOf(x.dtype).bytes);
  const auto launch = [&]<class Unit>(Unit /*unit*/) {
    const auto in_units = [&](int64_t numbers) {
      return numbers * number / static_cast<int64_t>(sizeof(Unit));
    };
    return LaunchOverlapped(GatherKernel<Unit>,
                            dim3(Rows(out)),
                            dim3(256),
                            0,
                            stream,
                            reinterpret_cast<const Unit*>(x.data),
                            in_units(x.stride),
                            rows,
                            reinterpret_cast<Unit*>(out.data),
                            in_units(out.stride),
                            static_cast<int>(in_units(out.cols)));
  };
  const bool whole = (x.cols | x.stride | out.stride) * number % sizeof(uint4) == 0;
  return whole ? launch(uint4{}) : launch(uint16_t{});
}

}  // namespace baton::cuda
