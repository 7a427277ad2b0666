#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/latent/rotate_latent.cuh"
#include "kernels/cuda/primitives/block_reduce.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/warp_reduce.cuh"

// The latents of rows: their norm, the rotated part of their keys, and their places in the cache.
namespace baton::cuda {
namespace {

constexpr int kThreads = 128;

struct Arguments {
  __nv_bfloat16* kv;
  int64_t stride;
  int rank;
  LatentAngles angles;
  int rope_dim;
  const float* norm;
  float epsilon;
  const int32_t* positions;
  const int32_t* row_blocks;
  std::byte* latents;    // of the layer
  int64_t block_stride;  // in bytes
  int block_tokens;
};

// One thread block for each row.
template <class Kv>
__global__ void __launch_bounds__(kThreads) WriteLatents(const Arguments a) {
  ReleaseSuccessor();
  const auto row = static_cast<int64_t>(blockIdx.x);
  const int block = a.row_blocks[row];
  const int token = a.positions[row] % a.block_tokens;
  const int thread = static_cast<int>(threadIdx.x);
  WaitForPredecessor();
  __nv_bfloat16* const x = a.kv + row * a.stride;
  Kv* const to = block < 0 ? nullptr
                           : reinterpret_cast<Kv*>(a.latents + block * a.block_stride) +
                                 int64_t{token} * (a.rank + a.rope_dim);
  const auto put = [&](int i, float value) {
    x[i] = __float2bfloat16(value);
    if (to != nullptr) to[i] = static_cast<Kv>(__bfloat162float(x[i]));
  };
  float squares = 0;
  for (int i = thread; i < a.rank; i += kThreads) {
    const float value = __bfloat162float(x[i]);
    squares = fmaf(value, value, squares);
  }
  squares = ReduceOverBlock(squares, 0.0f, [](float value) { return SumOverWarp(value); });
  const float scale = rsqrtf(squares / static_cast<float>(a.rank) + a.epsilon);
  for (int i = thread; i < a.rank; i += kThreads) {
    put(i, __bfloat162float(x[i]) * scale * a.norm[i]);
  }
  RotateLatent(a.angles, row, a.rope_dim, thread, kThreads, x + a.rank, [&](int i, float value) {
    put(a.rank + i, value);
  });
}

template <class Kv>
cudaError_t Launch(const Arguments& a, int64_t rows, cudaStream_t stream) {
  return LaunchOverlapped(
      WriteLatents<Kv>, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, stream, a);
}

}  // namespace

cudaError_t LaunchWriteLatent(const WriteLatentOp& op,
                              const RowPlaces& places,
                              const KvView& kv,
                              cudaStream_t stream) {
  const Arguments a = {
      .kv = reinterpret_cast<__nv_bfloat16*>(op.kv.data),
      .stride = op.kv.stride,
      .rank = op.rank,
      .angles = op.angles,
      .rope_dim = static_cast<int>(op.kv.cols) - op.rank,
      .norm = op.norm,
      .epsilon = op.norm_epsilon,
      .positions = places.positions,
      .row_blocks = places.blocks,
      .latents = kv.base + op.layer * kv.layer_stride,
      .block_stride = kv.block_stride,
      .block_tokens = kv.block_tokens,
  };
  switch (kv.dtype) {
    case DType::kF32:
      return Launch<float>(a, op.kv.rows, stream);
    case DType::kF16:
      return Launch<__half>(a, op.kv.rows, stream);
    case DType::kBF16:
      return Launch<__nv_bfloat16>(a, op.kv.rows, stream);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace baton::cuda
