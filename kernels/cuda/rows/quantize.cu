#include <algorithm>

#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/rows/quantize.cuh"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/rows/row_threads.h"
#include "kernels/cuda/rows/silu.cuh"

namespace baton::cuda {
namespace {

// One thread block for each row, which its threads hold in registers.
template <int kVectors>
__global__ void QuantizeKernel(
    const __nv_bfloat16* x, int64_t stride, uint8_t* out, float* scales, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  float values[kVectors][8] = {};
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at < cols) Read8(x + blockIdx.x * stride + at, values[vector]);
  }
  const float largest = LargestOfBlock(LargestOf(values));
  QuantizeRow(values, largest, cols, out + blockIdx.x * int64_t{cols}, scales + blockIdx.x);
}

// For rows of any length, which are read twice.
__global__ void AnyQuantizeKernel(
    const __nv_bfloat16* x, int64_t stride, uint8_t* out, float* scales, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* from = x + blockIdx.x * stride;
  uint8_t* to = out + blockIdx.x * int64_t{cols};
  float largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(blockDim.x)) {
    largest = fmaxf(largest, fabsf(__bfloat162float(from[i])));
  }
  largest = LargestOfBlock(largest);
  const float factor = QuantizingFactor(largest);
  if (threadIdx.x == 0) scales[blockIdx.x] = largest / kLargestFp8;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += static_cast<int>(blockDim.x)) {
    to[i] = __nv_cvt_float_to_fp8(__bfloat162float(from[i]) * factor, __NV_SATFINITE, __NV_E4M3);
  }
}

// Rounds where the separate ops would: ranks that exchange the rows in bf16 before they are
// quantized get the same bits.
template <int kVectors, bool kScales>
__global__ void SiluMulQuantizeKernel(const __nv_bfloat16* gate_up,
                                      int64_t stride,
                                      OutputScales in,
                                      uint8_t* out,
                                      float* scales,
                                      int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const __nv_bfloat16* gates = gate_up + blockIdx.x * stride;
  const float row_scale = kScales ? in.rows[blockIdx.x] : 1.0f;
  float values[kVectors][8] = {};
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = static_cast<int>(vector * blockDim.x + threadIdx.x) * 8;
    if (at >= cols) continue;
    float up[8];
    Read8(gates + at, values[vector]);
    Read8(gates + cols + at, up);
    if (kScales) {
      float gate_scales[8];
      float up_scales[8];
      Read8(in.cols + at, gate_scales);
      Read8(in.cols + cols + at, up_scales);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values[vector][i] *= row_scale * gate_scales[i];
        up[i] *= row_scale * up_scales[i];
      }
      RoundToBf16(values[vector]);
      RoundToBf16(up);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) values[vector][i] = SiluMul(values[vector][i], up[i]);
    RoundToBf16(values[vector]);
  }
  const float largest = LargestOfBlock(LargestOf(values));
  QuantizeRow(values, largest, cols, out + blockIdx.x * int64_t{cols}, scales + blockIdx.x);
}

template <class Number>
__global__ void RescaleKernel(
    Number* x, int64_t stride, OutputScales scales, const __nv_bfloat16* bias, int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  Number* row = x + blockIdx.y * stride;
  const float row_scale = scales.rows[blockIdx.y];
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int i = first; i < cols; i += static_cast<int>(gridDim.x * blockDim.x)) {
    float value = static_cast<float>(row[i]) * (row_scale * scales.cols[i]);
    if (bias != nullptr) value += __bfloat162float(bias[i]);
    row[i] = static_cast<Number>(value);
  }
}

uint8_t* Bytes(const Fp8Rows& rows) {
  return reinterpret_cast<uint8_t*>(rows.data);
}

template <int kVectors>
cudaError_t LaunchQuantizeVectors(const Tensor& x, const Fp8Rows& out, cudaStream_t stream) {
  return LaunchOverlapped(QuantizeKernel<kVectors>,
                          dim3(static_cast<unsigned>(x.rows)),
                          dim3(ThreadsFor(x.cols, kVectors)),
                          0,
                          stream,
                          reinterpret_cast<const __nv_bfloat16*>(x.data),
                          x.stride,
                          Bytes(out),
                          out.scales,
                          static_cast<int>(x.cols));
}

template <int kVectors>
cudaError_t LaunchSiluMulVectors(const Tensor& gate_up,
                                 const OutputScales& scales,
                                 const Fp8Rows& out,
                                 cudaStream_t stream) {
  return LaunchOverlapped(scales.rows != nullptr ? SiluMulQuantizeKernel<kVectors, true>
                                                 : SiluMulQuantizeKernel<kVectors, false>,
                          dim3(static_cast<unsigned>(out.rows)),
                          dim3(ThreadsFor(out.cols, kVectors)),
                          0,
                          stream,
                          reinterpret_cast<const __nv_bfloat16*>(gate_up.data),
                          gate_up.stride,
                          scales,
                          Bytes(out),
                          out.scales,
                          static_cast<int>(out.cols));
}

}  // namespace

cudaError_t LaunchQuantize(const Tensor& x, const Fp8Rows& out, cudaStream_t stream) {
  if (x.rows == 0) return cudaSuccess;
  if (x.cols % 8 == 0 && x.stride % 8 == 0 && x.cols <= kMaxFp8Columns) {
    return ForVectors(
        x.cols, [&](auto vectors) { return LaunchQuantizeVectors<vectors()>(x, out, stream); });
  }
  return LaunchOverlapped(AnyQuantizeKernel,
                          dim3(static_cast<unsigned>(x.rows)),
                          dim3(256),
                          0,
                          stream,
                          reinterpret_cast<const __nv_bfloat16*>(x.data),
                          x.stride,
                          Bytes(out),
                          out.scales,
                          static_cast<int>(x.cols));
}

cudaError_t LaunchSiluMulQuantize(const Tensor& gate_up,
                                  const OutputScales& scales,
                                  const Fp8Rows& out,
                                  cudaStream_t stream) {
  if (out.rows == 0) return cudaSuccess;
  return ForVectors(out.cols, [&](auto vectors) {
    return LaunchSiluMulVectors<vectors()>(gate_up, scales, out, stream);
  });
}

cudaError_t LaunchRescale(const Tensor& x,
                          const OutputScales& scales,
                          const __nv_bfloat16* bias,
                          cudaStream_t stream) {
  if (x.rows == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  const auto blocks = static_cast<unsigned>(std::clamp(CeilDiv(x.cols, 4 * kThreads), 1, 256));
  const auto launch = [&](auto kernel, auto* data) {
    return LaunchOverlapped(kernel,
                            dim3(blocks, static_cast<unsigned>(x.rows)),
                            dim3(kThreads),
                            0,
                            stream,
                            data,
                            x.stride,
                            scales,
                            bias,
                            static_cast<int>(x.cols));
  };
  return x.dtype == DType::kF32
             ? launch(RescaleKernel<float>, reinterpret_cast<float*>(x.data))
             : launch(RescaleKernel<__nv_bfloat16>, reinterpret_cast<__nv_bfloat16*>(x.data));
}

}  // namespace baton::cuda
