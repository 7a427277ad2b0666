#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "tests/gpu/attention_reference.h"
#include "tests/gpu/random_number.cuh"

namespace baton::cuda::testing {
namespace {

__device__ __nv_bfloat16 Number(int sequence, int position, int column) {
  return __float2bfloat16(
      NumberOf((uint64_t(sequence) << 52) ^ (uint64_t(position) << 24) ^ uint64_t(column)));
}

__device__ float Load(const std::byte* p, DType dtype, int i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(p)[i];
  if (dtype == DType::kF16) return __half2float(reinterpret_cast<const __half*>(p)[i]);
  if (dtype == DType::kFp8) return float(reinterpret_cast<const __nv_fp8_e4m3*>(p)[i]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(p)[i]);
}

__device__ void Store(std::byte* p, DType dtype, int i, float x) {
  if (dtype == DType::kF32) reinterpret_cast<float*>(p)[i] = x;
  if (dtype == DType::kF16) reinterpret_cast<__half*>(p)[i] = __float2half(x);
  if (dtype == DType::kBF16) reinterpret_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(x);
  if (dtype == DType::kFp8) reinterpret_cast<__nv_fp8_e4m3*>(p)[i] = __nv_fp8_e4m3(x);
}

struct Place {
  KvView kv;
  int element_bytes;

  explicit Place(const KvView& view)
      : kv(view), element_bytes(static_cast<int>(ShapeOf(view.dtype).bytes)) {}
  __device__ std::byte* At(
      const int32_t* table, int position, int layer, int part, int head) const {
    return kv.base + table[position / kv.block_tokens] * kv.block_stride + layer * kv.layer_stride +
           part * kv.value_offset + head * kv.head_stride +
           int64_t{position % kv.block_tokens} * kv.head_dim * element_bytes;
  }
};

// The column of K (part 0) or V (part 1) of all heads of the model in which the rank's column `i`
// is.
__device__ int KvColumn(const HeldHeads& heads, int head_dim, int part, int i, int layer) {
  return (part * heads.all + heads.first) * head_dim + i + 4096 * (1 + 8 * layer);
}

// Grid [position][layer].
__global__ void WriteKvKernel(Place place, HeldHeads heads, const int32_t* table, int number) {
  const int dim = place.kv.head_dim;
  const int width = place.kv.kv_heads * dim;
  for (int i = threadIdx.x; i < 2 * width; i += blockDim.x) {
    std::byte* at = place.At(table, blockIdx.x, blockIdx.y, i / width, i % width / dim);
    const int column = KvColumn(heads, dim, i / width, i % width, blockIdx.y);
    Store(at, place.kv.dtype, i % dim, __bfloat162float(Number(number, blockIdx.x, column)));
  }
}

// Grid [row]. Writes query, key and value of layer `layer` for positions from `first_position` on.
__global__ void WriteQkvKernel(__nv_bfloat16* qkv,
                               int64_t stride,
                               AttentionShape shape,
                               HeldHeads heads,
                               int first_position,
                               int number,
                               int layer) {
  const int position = first_position + blockIdx.x;
  const int dim = shape.head_dim;
  const int q_width = shape.q_heads * dim;
  const int kv_width = shape.kv_heads * dim;
  for (int i = threadIdx.x; i < q_width + 2 * kv_width; i += blockDim.x) {
    const int at = i - q_width;  // in K and V
    const int column = at < 0 ? heads.first * q_width / shape.kv_heads + i + 2048 * 1024
                              : KvColumn(heads, dim, at / kv_width, at % kv_width, layer);
    qkv[blockIdx.x * stride + i] = Number(number, position, column);
  }
}

__global__ void FillNanKernel(uint16_t* p, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    p[i] = 0x7fff;  // NaN as bf16, as f16, and, twice, as f32
  }
}

__device__ float BlockReduce(float x, bool maximum) {
  __shared__ float all[256];
  all[threadIdx.x] = x;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) {
      const float other = all[threadIdx.x + step];
      all[threadIdx.x] = maximum ? fmaxf(all[threadIdx.x], other) : all[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const float result = all[0];
  __syncthreads();
  return result;
}

// Grid [row of a sequence][q head], 256 threads. Computes the relative error of one head of one
// row.
__global__ void CompareKernel(Place place,
                              const float* kv_scales,
                              const float* sinks,
                              const int32_t* table,
                              int layer,
                              AttentionShape shape,
                              int first_position,
                              const __nv_bfloat16* q,
                              int64_t q_stride,
                              const __nv_bfloat16* out,
                              int64_t out_stride,
                              float* scores,
                              int max_scores,
                              float* errors) {
  const int head = blockIdx.y;
  const int kv_head = head / (shape.q_heads / shape.kv_heads);
  const float key_scale = kv_scales != nullptr ? kv_scales[kv_head] : 1;
  const float value_scale = kv_scales != nullptr ? kv_scales[shape.kv_heads + kv_head] : 1;
  const int dim = shape.head_dim;
  const int end = first_position + blockIdx.x + 1;
  const int begin = shape.window > 0 ? max(0, end - shape.window) : 0;
  const size_t job = blockIdx.x * size_t{gridDim.y} + head;
  float* mine = scores + job * max_scores;
  const __nv_bfloat16* query = q + blockIdx.x * q_stride + head * dim;
  float largest = -INFINITY;
  for (int p = begin + threadIdx.x; p < end; p += blockDim.x) {
    const std::byte* key = place.At(table, p, layer, 0, kv_head);
    float score = 0;
    for (int d = 0; d < dim; ++d) {
      score += __bfloat162float(query[d]) * Load(key, place.kv.dtype, d);
    }
    score *= shape.scale * key_scale;
    mine[p - begin] = shape.cap > 0 ? shape.cap * tanhf(score / shape.cap) : score;
    largest = fmaxf(largest, mine[p - begin]);
  }
  if (sinks != nullptr) largest = fmaxf(largest, sinks[head]);
  largest = BlockReduce(largest, true);
  float sum = sinks != nullptr && threadIdx.x == 0 ? expf(sinks[head] - largest) : 0;
  for (int p = begin + threadIdx.x; p < end; p += blockDim.x) {
    mine[p - begin] = expf(mine[p - begin] - largest);
    sum += mine[p - begin];
  }
  sum = BlockReduce(sum, false);
  float error = 0;
  float size = 0;
  if (threadIdx.x < dim) {
    float value = 0;
    for (int p = begin; p < end; ++p) {
      value += mine[p - begin] *
               Load(place.At(table, p, layer, 1, kv_head), place.kv.dtype, threadIdx.x);
    }
    value *= value_scale / sum;
    const float got = __bfloat162float(out[blockIdx.x * out_stride + head * dim + threadIdx.x]);
    error = (got - value) * (got - value);
    size = value * value;
  }
  error = BlockReduce(error, false);
  size = BlockReduce(size, false);
  if (threadIdx.x == 0) errors[job] = sqrtf(error / size);
}

}  // namespace

void WriteKv(const KvView& kv,
             const HeldHeads& heads,
             const int32_t* table,
             int32_t number,
             int32_t length,
             cudaStream_t stream) {
  WriteKvKernel<<<dim3(length, kv.layers), 256, 0, stream>>>(Place(kv), heads, table, number);
}

void WriteQkv(const AttentionShape& shape,
              const HeldHeads& heads,
              std::byte* qkv,
              int64_t stride,
              int32_t number,
              int32_t first_position,
              int32_t rows,
              int32_t layer,
              cudaStream_t stream) {
  WriteQkvKernel<<<rows, 256, 0, stream>>>(
      reinterpret_cast<__nv_bfloat16*>(qkv), stride, shape, heads, first_position, number, layer);
}

void FillNan(std::byte* memory, size_t bytes, cudaStream_t stream) {
  FillNanKernel<<<1024, 256, 0, stream>>>(reinterpret_cast<uint16_t*>(memory), bytes / 2);
}

void Compare(const AttentionShape& shape,
             const KvView& kv,
             const float* kv_scales,
             const float* sinks,
             int32_t layer,
             const Computed& computed,
             float* scores,
             float* errors,
             cudaStream_t stream) {
  CompareKernel<<<dim3(computed.rows, shape.q_heads), 256, 0, stream>>>(
      Place(kv),
      kv_scales,
      sinks,
      computed.table,
      layer,
      shape,
      computed.first_position,
      reinterpret_cast<const __nv_bfloat16*>(computed.q),
      computed.q_stride,
      reinterpret_cast<const __nv_bfloat16*>(computed.out),
      computed.out_stride,
      scores,
      computed.first_position + computed.rows,
      errors);
}

}  // namespace baton::cuda::testing
