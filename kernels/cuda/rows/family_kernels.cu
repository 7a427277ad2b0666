#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "common/base/overloaded.h"
#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"
#include "kernels/cuda/rows/family_kernels.h"
#include "kernels/cuda/rows/row_threads.h"
#include "kernels/cuda/rows/silu.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kElementThreads = 256;

// kCount consecutive numbers as float32: one, or eight at an address of whole vectors.
template <int kCount, class T>
__device__ __forceinline__ void Read(const T* from, float (&to)[kCount]) {
  if constexpr (kCount == 8) {
    Read8(from, to);
  } else {
    to[0] = ToFloat(*from);
  }
}
template <int kCount, class T>
__device__ __forceinline__ void Write(T* to, const float (&from)[kCount]) {
  if constexpr (kCount == 8) {
    Write8(to, from);
  } else {
    Store(from[0], to);
  }
}

// The functions of ForEach: they change the numbers of row `row` from column `col` on.

struct Scaling {
  float factor;

  template <int kCount>
  __device__ void operator()(int64_t, int, float (&x)[kCount]) const {
#pragma unroll
    for (float& value : x) value *= factor;
  }
};

struct Adding {
  const float* bias;

  template <int kCount>
  __device__ void operator()(int64_t, int col, float (&x)[kCount]) const {
    float added[kCount];
    Read<kCount>(bias + col, added);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] += added[i];
  }
};

__device__ __forceinline__ float Gelu(float x) {
  constexpr float kRootHalf = 0.70710678118654752f;
  return 0.5f * x * (1.0f + erff(x * kRootHalf));
}
__device__ __forceinline__ float GeluTanh(float x) {
  constexpr float kRoot = 0.79788456080286536f;  // √(2/π)
  return 0.5f * x * (1.0f + tanhf(kRoot * (x + 0.044715f * x * x * x)));
}

template <Activation kActivation>
struct Activating {
  float scale;

  template <int kCount>
  __device__ void operator()(int64_t, int, float (&x)[kCount]) const {
#pragma unroll
    for (float& value : x) {
      const float scaled = scale * value;
      if constexpr (kActivation == Activation::kGelu) value = Gelu(scaled);
      if constexpr (kActivation == Activation::kGeluTanh) value = GeluTanh(scaled);
      if constexpr (kActivation == Activation::kSilu) value = scaled / (1.0f + expf(-scaled));
      if constexpr (kActivation == Activation::kSquaredRelu) value = SquaredRelu(scaled);
    }
  }
};

struct Capping {
  float cap;

  template <int kCount>
  __device__ void operator()(int64_t, int, float (&x)[kCount]) const {
#pragma unroll
    for (float& value : x) value = cap * tanhf(value / cap);
  }
};

struct Factors {
  const __nv_bfloat16* factors;
  int64_t stride;

  template <int kCount>
  __device__ void operator()(int64_t row, int col, float (&x)[kCount]) const {
    float by[kCount];
    Read<kCount>(factors + row * stride + col, by);
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] *= by[i];
  }
};

struct Gates {
  const __nv_bfloat16* gates;
  int64_t stride;
  bool of_row;  // one gate for each row

  template <int kCount>
  __device__ void operator()(int64_t row, int col, float (&x)[kCount]) const {
    float gate[kCount];
    if (of_row) {
#pragma unroll
      for (float& value : gate) value = ToFloat(gates[row * stride]);
    } else {
      Read<kCount>(gates + row * stride + col, gate);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] /= 1.0f + expf(-gate[i]);
  }
};

// A thread changes kCount numbers. Grid [row][part of the row].
template <class T, int kCount, class Function>
__global__ void __launch_bounds__(kElementThreads)
    ForEachKernel(T* x, int64_t stride, int cols, Function function) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int64_t row = blockIdx.x;
  const int col = static_cast<int>(blockIdx.y * kElementThreads + threadIdx.x) * kCount;
  if (col >= cols) return;
  T* const at = x + row * stride + col;
  float values[kCount];
  Read<kCount>(at, values);
  function(row, col, values);
  Write<kCount>(at, values);
}

// `vectors`: the operands of `function` are whole vectors, too.
template <class T, class Function>
cudaError_t ForEach(const Tensor& x, bool vectors, const Function& function, cudaStream_t stream) {
  const auto launch = [&]<int kCount>(std::integral_constant<int, kCount>) {
    const auto parts = CeilDiv(x.cols, int64_t{kElementThreads} * kCount);
    return LaunchOverlapped(ForEachKernel<T, kCount, Function>,
                            dim3(static_cast<unsigned>(x.rows), static_cast<unsigned>(parts)),
                            dim3(kElementThreads),
                            0,
                            stream,
                            reinterpret_cast<T*>(x.data),
                            x.stride,
                            static_cast<int>(x.cols),
                            function);
  };
  return vectors ? launch(std::integral_constant<int, 8>())
                 : launch(std::integral_constant<int, 1>());
}

bool IsVectors(const Tensor& x) {
  return (x.cols | x.stride) % 8 == 0;
}

template <class Function>
cudaError_t ForEach(const Tensor& x, bool vectors, const Function& function, cudaStream_t stream) {
  const bool whole = vectors && IsVectors(x);
  return x.dtype == DType::kF32 ? ForEach<float>(x, whole, function, stream)
                                : ForEach<__nv_bfloat16>(x, whole, function, stream);
}

cudaError_t Launch(const ActivateOp& op, cudaStream_t stream) {
  switch (op.activation) {
    case Activation::kGelu:
      return ForEach(op.x, true, Activating<Activation::kGelu>{op.scale}, stream);
    case Activation::kGeluTanh:
      return ForEach(op.x, true, Activating<Activation::kGeluTanh>{op.scale}, stream);
    case Activation::kSilu:
      return ForEach(op.x, true, Activating<Activation::kSilu>{op.scale}, stream);
    case Activation::kSquaredRelu:
      break;
  }
  return ForEach(op.x, true, Activating<Activation::kSquaredRelu>{op.scale}, stream);
}

// Sums over the threads of a block, in a fixed order. `parts` is shared memory of 32 numbers, which
// the block does not use otherwise.
__device__ __forceinline__ float SumOverBlock(float mine, float* parts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  mine = SumOverWarp(mine);
  __syncthreads();  // all have read the parts of the sum before
  if (lane == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  return SumOverWarp(lane < static_cast<int>(blockDim.x) / kWarp ? parts[lane] : 0.0f);
}

// One thread block for each row. The numbers are read three times: again from the L1 or L2 cache.
template <class T>
__global__ void LayerNormKernel(const T* x,
                                int64_t x_stride,
                                const float* weight,
                                const float* bias,
                                float epsilon,
                                __nv_bfloat16* out,
                                int64_t out_stride,
                                int cols) {
  __shared__ float parts[32];
  ReleaseSuccessor();
  WaitForPredecessor();
  x += blockIdx.x * x_stride;
  out += blockIdx.x * out_stride;
  const int first = static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
  float sum = 0;
  for (int i = first; i < cols; i += step) sum += ToFloat(x[i]);
  const float mean = SumOverBlock(sum, parts) / static_cast<float>(cols);
  float squares = 0;
  for (int i = first; i < cols; i += step) {
    const float difference = ToFloat(x[i]) - mean;
    squares += difference * difference;
  }
  const float variance = SumOverBlock(squares, parts) / static_cast<float>(cols);
  const float scale = rsqrtf(variance + epsilon);
  for (int i = first; i < cols; i += step) {
    const float value = (ToFloat(x[i]) - mean) * scale * weight[i];
    out[i] = __float2bfloat16(bias == nullptr ? value : value + bias[i]);
  }
}

cudaError_t Launch(const LayerNormOp& op, cudaStream_t stream) {
  const auto launch = [&]<class T>(const T* x) {
    return LaunchOverlapped(LayerNormKernel<T>,
                            dim3(static_cast<unsigned>(op.x.rows)),
                            dim3(std::min(ThreadsFor(8 * op.x.cols, 1), 512u)),
                            0,
                            stream,
                            x,
                            op.x.stride,
                            op.weight,
                            op.bias,
                            op.epsilon,
                            reinterpret_cast<__nv_bfloat16*>(op.out.data),
                            op.out.stride,
                            static_cast<int>(op.x.cols));
  };
  return op.x.dtype == DType::kF32 ? launch(reinterpret_cast<const float*>(op.x.data))
                                   : launch(reinterpret_cast<const __nv_bfloat16*>(op.x.data));
}

// Projections of a row: [q heads | k heads | v heads].
struct Projections {
  __nv_bfloat16* qkv;
  int64_t stride;
  int q_heads;
  int kv_heads;
  int dim;

  Projections(const Tensor& x, const HeadShape& heads)
      : qkv(reinterpret_cast<__nv_bfloat16*>(x.data)),
        stride(x.stride),
        q_heads(heads.q_heads),
        kv_heads(heads.kv_heads),
        dim(heads.head_dim) {}
  __device__ __forceinline__ __nv_bfloat16* Head(int64_t row, int head) const {
    return qkv + row * stride + int64_t{head} * dim;
  }
};

// Where this rank's heads are among those of the model, and whether it owns its KV heads.
struct Place {
  int q_heads;
  int kv_heads;
  int first_q;
  int first_kv;
  bool owns_kv;

  explicit Place(const HeadPlace& place)
      : q_heads(place.model.q_heads),
        kv_heads(place.model.kv_heads),
        first_q(place.first_q_head),
        first_kv(place.first_kv_head),
        owns_kv(place.owns_kv_heads) {}
};

constexpr int kHeadWarps = 8;

// One thread block for each row; one warp computes a head of the model.
__global__ void __launch_bounds__(kWarp* kHeadWarps)
    HeadSquaresKernel(const Projections x, const Place place, float* out, int64_t out_stride) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < place.q_heads + place.kv_heads;
       head += kHeadWarps) {
    const bool is_q = head < place.q_heads;
    const int held = is_q ? head - place.first_q : head - place.q_heads - place.first_kv;
    const bool counts = held >= 0 && (is_q ? held < x.q_heads : place.owns_kv && held < x.kv_heads);
    float squares = 0;
    if (counts) {
      const __nv_bfloat16* const numbers = x.Head(blockIdx.x, is_q ? held : x.q_heads + held);
      for (int i = lane; i < x.dim; i += kWarp) {
        const float value = ToFloat(numbers[i]);
        squares = fmaf(value, value, squares);
      }
      squares = SumOverWarp(squares);
    }
    if (lane == 0) out[blockIdx.x * out_stride + head] = counts ? squares : -0.0f;
  }
}

// One thread block for each row. Every warp adds up the squares itself, in the same order on every
// rank.
__global__ void __launch_bounds__(kWarp* kHeadWarps) ProjectionNormKernel(const Projections x,
                                                                          const Place place,
                                                                          const float* squares,
                                                                          int64_t squares_stride,
                                                                          const float* weight,
                                                                          float epsilon) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float* const of_row = squares + blockIdx.x * squares_stride;
  const auto scale_of = [&](int first, int heads) {
    float sum = 0;
    for (int i = lane; i < heads; i += kWarp) sum += of_row[first + i];
    return rsqrtf(SumOverWarp(sum) / static_cast<float>(heads * x.dim) + epsilon);
  };
  const float q_scale = scale_of(0, place.q_heads);
  const float k_scale = scale_of(place.q_heads, place.kv_heads);
  __nv_bfloat16* const numbers = x.Head(blockIdx.x, 0);
  const int q_cols = x.q_heads * x.dim;
  const int cols = q_cols + x.kv_heads * x.dim;
  for (int i = static_cast<int>(threadIdx.x); i < cols; i += kWarp * kHeadWarps) {
    const float scale = i < q_cols ? q_scale : k_scale;
    numbers[i] = __float2bfloat16(ToFloat(numbers[i]) * scale * weight[i]);
  }
}

// One thread block for each row; one warp computes a head of q or k.
__global__ void __launch_bounds__(kWarp* kHeadWarps)
    HeadLayerNormKernel(const Projections x, const float* weight, float epsilon) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto dim = static_cast<float>(x.dim);
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < x.q_heads + x.kv_heads;
       head += kHeadWarps) {
    __nv_bfloat16* const numbers = x.Head(blockIdx.x, head);
    const float* const of_head = weight + int64_t{head} * x.dim;
    float sum = 0;
    for (int i = lane; i < x.dim; i += kWarp) sum += ToFloat(numbers[i]);
    const float mean = SumOverWarp(sum) / dim;
    float squares = 0;
    for (int i = lane; i < x.dim; i += kWarp) {
      const float difference = ToFloat(numbers[i]) - mean;
      squares = fmaf(difference, difference, squares);
    }
    const float scale = rsqrtf(SumOverWarp(squares) / dim + epsilon);
    for (int i = lane; i < x.dim; i += kWarp) {
      numbers[i] = __float2bfloat16((ToFloat(numbers[i]) - mean) * scale * of_head[i]);
    }
  }
}

// One warp computes a row.
__global__ void __launch_bounds__(kWarp* kHeadWarps) DotKernel(const __nv_bfloat16* x,
                                                               int64_t x_stride,
                                                               const __nv_bfloat16* weight,
                                                               __nv_bfloat16* out,
                                                               int64_t out_stride,
                                                               int rows,
                                                               int cols) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * kHeadWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  float sum = 0;
  for (int i = lane; i < cols; i += kWarp) {
    sum = fmaf(ToFloat(x[row * x_stride + i]), ToFloat(weight[i]), sum);
  }
  sum = SumOverWarp(sum);
  if (lane == 0) out[row * out_stride] = __float2bfloat16(sum);
}

cudaError_t Launch(const DotOp& op, cudaStream_t stream) {
  return LaunchOverlapped(DotKernel,
                          dim3(static_cast<unsigned>(CeilDiv(op.x.rows, kHeadWarps))),
                          dim3(kWarp * kHeadWarps),
                          0,
                          stream,
                          reinterpret_cast<const __nv_bfloat16*>(op.x.data),
                          op.x.stride,
                          op.weight,
                          reinterpret_cast<__nv_bfloat16*>(op.out.data),
                          op.out.stride,
                          static_cast<int>(op.x.rows),
                          static_cast<int>(op.x.cols));
}

template <class Kernel, class... Arguments>
cudaError_t LaunchHeads(const Tensor& qkv,
                        cudaStream_t stream,
                        Kernel kernel,
                        const Arguments&... arguments) {
  return LaunchOverlapped(kernel,
                          dim3(static_cast<unsigned>(qkv.rows)),
                          dim3(kWarp * kHeadWarps),
                          0,
                          stream,
                          arguments...);
}

}  // namespace

cudaError_t LaunchFamilyOp(const FamilyOp& op, cudaStream_t stream) {
  return std::visit(
      Overloaded{
          [&](const ScaleOp& c) { return ForEach(c.x, true, Scaling{c.factor}, stream); },
          [&](const LayerNormOp& c) { return Launch(c, stream); },
          [&](const ActivateOp& c) { return Launch(c, stream); },
          [&](const MultiplyOp& c) {
            const Factors factors = {reinterpret_cast<const __nv_bfloat16*>(c.factors.data),
                                     c.factors.stride};
            return ForEach(c.x, IsVectors(c.factors), factors, stream);
          },
          [&](const SoftCapOp& c) { return ForEach(c.x, true, Capping{c.cap}, stream); },
          [&](const SigmoidGateOp& c) {
            const Gates gates = {reinterpret_cast<const __nv_bfloat16*>(c.gate.data),
                                 c.gate.stride,
                                 c.gate.cols == 1};
            return ForEach(c.x, gates.of_row || IsVectors(c.gate), gates, stream);
          },
          [&](const HeadSquaresOp& c) {
            return LaunchHeads(c.qkv,
                               stream,
                               HeadSquaresKernel,
                               Projections(c.qkv, c.heads),
                               Place(c.place),
                               reinterpret_cast<float*>(c.out.data),
                               c.out.stride);
          },
          [&](const ProjectionNormOp& c) {
            return LaunchHeads(c.qkv,
                               stream,
                               ProjectionNormKernel,
                               Projections(c.qkv, c.heads),
                               Place(c.place),
                               reinterpret_cast<const float*>(c.squares.data),
                               c.squares.stride,
                               c.weight,
                               c.epsilon);
          },
          [&](const BiasOp& c) { return ForEach(c.x, true, Adding{c.bias}, stream); },
          [&](const DotOp& c) { return Launch(c, stream); },
          [&](const HeadLayerNormOp& c) {
            return LaunchHeads(c.qkv,
                               stream,
                               HeadLayerNormKernel,
                               Projections(c.qkv, c.heads),
                               c.weight,
                               c.epsilon);
          },
      },
      op);
}

}  // namespace baton::cuda
