#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/latent/hopper_latents.cuh"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/wgmma.cuh"

// Attention to latents for Hopper. A thread block computes 64 heads of one row over a part of its
// context. Heads are the rows of both matrix products, so a tile of latents in shared memory serves
// all of them, as keys and as values. Warp groups divide the work: one multiplies queries and
// latents and makes the softmax, two others add half of the values each, and a warp of the fourth
// loads latents by TMA. The tensor cores add the values of a tile while the first group makes the
// softmax of the next one. Two thread blocks that compute 64 heads each of the same row are a
// cluster: each loads half of the latents for both.
namespace baton::cuda {
namespace hopper_latents {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// 2^x. Numbers below 2^-126 are 0.
__device__ __forceinline__ float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// The warp group that makes the weights of all tiles: exponentials of scores.
class Scores {
 public:
  __device__ __forceinline__ explicit Scores(const Context& c) : c_(c) { LoadQueries(); }

  __device__ __forceinline__ void Run() {
    float scores[kTokens / 2] = {};
    Multiply(scores, [](int) {});
    const int last = c_.tiles - 1;
    for (int tile = 0; tile < last; ++tile) {
      StoreWeights(tile, scores);
      Multiply(scores, [&](int step) {
        if (step == kPublishStep) Publish(tile);
      });
    }
    const int seen = c_.work.end - c_.work.begin - last * kTokens;
    Mask(scores, seen);
    ClearAbsent(c_.shared.stages[last % kStages], seen);
    StoreWeights(last, scores);
    Publish(last);
    Finish();
  }

 private:
  __device__ __forceinline__ void LoadQueries() {
    const int64_t of_row = c_.work.row * c_.a.q_stride;
    const __nv_bfloat16* const q = c_.a.q + of_row + int64_t{c_.first_head} * kTiledWidth;
    const uint32_t shared = SharedAddress(c_.shared.queries);
    constexpr int kVectors = (kSpans - kHeldSpans) * kSwizzledRowVectors;
    for (int i = static_cast<int>(threadIdx.x); i < kHeads * kVectors; i += kGroupThreads) {
      const int row = i / kVectors;
      const int vector = i % kVectors;
      const bool present = c_.HasHead(row);
      const __nv_bfloat16* const from =
          q + int64_t{row} * kTiledWidth + kHeldSpans * kSpanNumbers + vector * 8;
      CopyVector(SwizzledVector(shared + vector / kSwizzledRowVectors * kQuerySpanBytes,
                                row,
                                vector % kSwizzledRowVectors),
                 present ? from : c_.a.q,
                 present);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = c_.Row() + 8 * half;
      const bool present = c_.HasHead(row);
      const auto* const from = reinterpret_cast<const uint32_t*>(
          q + (present ? int64_t{row} * kTiledWidth : 0) + c_.Column());
#pragma unroll
      for (int step = 0; step < kHeldSpans * kSpanSteps; ++step) {
        queries_[step][half] = present ? from[step * 8] : 0;
        queries_[step][2 + half] = present ? from[step * 8 + 4] : 0;
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    FenceAsyncProxy();
    SyncThreads(1, kGroupThreads);
  }

  // scores = queries · latents, of the next tile. Calls `before` before each product is issued.
  template <class Before>
  __device__ __forceinline__ void Multiply(float (&scores)[kTokens / 2], const Before& before) {
    WaitBarrier(SharedAddress(&c_.shared.latents_full[cursor_.slot]), cursor_.parity);
    const uint64_t latents = SmemDescriptor(
        UniformInWarp(SharedAddress(c_.shared.stages[cursor_.slot])), kTokenGroupBytes);
    const uint64_t queries = SmemDescriptor(SharedAddress(c_.shared.queries));
    WgmmaFence();
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      before(step);
      const int span = step / kSpanSteps;
      const int in_span = step % kSpanSteps * kStep;
      const uint64_t right = latents + (span * (kPieceBytes >> 4) + in_span);
      if (span < kHeldSpans) {
        WgmmaMultiplyHeld<kTokens>(scores, queries_[span < kHeldSpans ? step : 0], right, step > 0);
      } else {
        WgmmaMultiply<kTokens>(
            scores, queries + ((span - kHeldSpans) * (kQuerySpanBytes >> 4) + in_span), right);
      }
    }
    WgmmaCommit();
    cursor_.Advance(1, kStages);
    WgmmaWait<0>();
  }

  // Hides the positions of the last tile from the first `seen` ones on.
  __device__ __forceinline__ void Mask(float (&scores)[kTokens / 2], int seen) const {
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      if (i / 4 * 8 + c_.Column() + i % 2 >= seen) scores[i] = -INFINITY;
    }
  }

  // A block has tokens behind the end of a context. Their weights are 0, but their latents may be
  // no numbers.
  __device__ __forceinline__ void ClearAbsent(unsigned char* stage, int seen) const {
    const int first = seen % kHopperLatentGroup;
    if (first == 0) return;
    unsigned char* const group = stage + seen / kHopperLatentGroup * kTokenGroupBytes;
    constexpr int kRowVectors = kSpans * kSwizzledRowVectors;
    for (int i = static_cast<int>(threadIdx.x); i < (kHopperLatentGroup - first) * kRowVectors;
         i += kGroupThreads) {
      const int vector = i % kRowVectors;
      *reinterpret_cast<uint4*>(group + vector / kSwizzledRowVectors * kPieceBytes +
                                (first + i / kRowVectors) * kSpanBytes +
                                vector % kSwizzledRowVectors * 16) = {};
    }
  }

  // A tile has a position that is seen, so that its largest score is a number.
  __device__ __forceinline__ void StoreWeights(int tile, const float (&scores)[kTokens / 2]) {
    float largest[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = scores[2 * half];
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        const float* const pair = scores + 4 * i + 2 * half;
        largest[half] = fmaxf(largest[half], fmaxf(pair[0], pair[1]));
      }
    }
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      largest[0] = fmaxf(largest[0], __shfl_xor_sync(~0u, largest[0], lanes));
      largest[1] = fmaxf(largest[1], __shfl_xor_sync(~0u, largest[1], lanes));
    }
    uint32_t pairs[2][kTokens / 8];
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float next = fmaxf(largest_[half], largest[half] * c_.a.scale);
      keep[half] = Exp2(largest_[half] - next);
      largest_[half] = next;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        const float* const pair = scores + 4 * i + 2 * half;
        const float w0 = Exp2(fmaf(pair[0], c_.a.scale, -next));
        const float w1 = Exp2(fmaf(pair[1], c_.a.scale, -next));
        sum += w0 + w1;
        const __nv_bfloat162 packed = __floats2bfloat162_rn(w0, w1);
        pairs[half][i] = *reinterpret_cast<const uint32_t*>(&packed);
      }
      sum_[half] = fmaf(sum_[half], keep[half], sum);
    }
    const int buffer = tile % kBuffers;
    WaitBarrier(SharedAddress(&c_.shared.weights_empty[buffer]), tile / kBuffers % 2 ^ 1);
    // Of the four matrices of 8 rows × 8 tokens that are stored at once, a lane addresses a row.
    const int row = c_.warp * 16 + c_.lane % 16;
    const uint32_t to = SharedAddress(c_.shared.weights[buffer]);
#pragma unroll
    for (int i = 0; i < kTokens / 8; i += 2) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       SwizzledVector(to, row, i + c_.lane / 16)),
                   "r"(pairs[0][i]),
                   "r"(pairs[1][i]),
                   "r"(pairs[0][i + 1]),
                   "r"(pairs[1][i + 1])
                   : "memory");
    }
    if (c_.lane % 4 == 0) {
      c_.shared.keep[buffer][c_.Row()] = keep[0];
      c_.shared.keep[buffer][c_.Row() + 8] = keep[1];
    }
    FenceAsyncProxy();
  }

  // Lets the other groups read the weights of the tile.
  __device__ __forceinline__ void Publish(int tile) const {
    Arrive(SharedAddress(&c_.shared.weights_full[tile % kBuffers]));
  }

  // Stores what the values are multiplied by, and the logarithms of sums of a part of a context.
  __device__ __forceinline__ void Finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const int row = c_.Row() + 8 * half;
      if (c_.lane % 4 != 0) continue;
      c_.shared.factor[row] = 1.0f / sum;
      if (c_.work.partial < 0 || !c_.HasHead(row)) continue;
      const int64_t at = int64_t{c_.work.partial} * c_.a.heads + c_.first_head + row;
      c_.a.partial.lse[at] = largest_[half] + log2f(sum);
    }
  }

  const Context& c_;
  RingCursor cursor_;  // of the next tile whose scores are computed
  uint32_t queries_[kHeldSpans * kSpanSteps][4];
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {};  // of the thread's own tokens
};

// A warp group that adds its kValues numbers of the values of all tiles.
class Values {
 public:
  __device__ __forceinline__ Values(const Context& c, int group) : c_(c), first_(group * kValues) {}

  template <int kCluster>
  __device__ __forceinline__ void Run() {
    RingCursor cursor;
    for (int tile = 0; tile < c_.tiles; ++tile) {
      const int buffer = tile % kBuffers;
      const uint64_t weights =
          SmemDescriptor(UniformInWarp(SharedAddress(c_.shared.weights[buffer])));
      const uint32_t from = SharedAddress(c_.shared.stages[cursor.slot]) +
                            static_cast<uint32_t>(first_ / kSpanNumbers * kPieceBytes);
      const uint64_t latents = SmemDescriptor(UniformInWarp(from), kTokenGroupBytes, kPieceBytes);
      WaitBarrier(SharedAddress(&c_.shared.weights_full[buffer]), tile / kBuffers % 2);
      Rescale(c_.shared.keep[buffer]);
      WgmmaFence();
#pragma unroll
      for (int step = 0; step < kTokens / 16; ++step) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          WgmmaMultiplyRows<kPart>(values_[part],
                                   weights + step * kStep,
                                   latents + (step * (2 * kTokenGroupBytes >> 4) +
                                              part * (kPart / kSpanNumbers * kPieceBytes >> 4)));
        }
      }
      WgmmaCommit();
      WgmmaWait<0>();
      __syncwarp();
      if (c_.lane < kCluster) {
        const uint32_t empty = SharedAddress(&c_.shared.latents_empty[cursor.slot]);
        ArriveRemote(MapToRank(empty, c_.lane));
      }
      if (c_.lane == 0) Arrive(SharedAddress(&c_.shared.weights_empty[buffer]));
      cursor.Advance(1, kStages);
    }
  }

  __device__ __forceinline__ void Store() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = c_.Row() + 8 * half;
      if (!c_.HasHead(row)) continue;
      const float factor = c_.shared.factor[row];
      const int head = c_.first_head + row;
      const int column = first_ + c_.Column();
      if (c_.work.partial < 0) {
        __nv_bfloat16* const out =
            c_.a.out + c_.work.row * c_.a.out_stride + int64_t{head} * kTiledRank + column;
#pragma unroll
        for (int i = 0; i < kValues / 8; ++i) {
          const float* const pair = Pair(i, half);
          *reinterpret_cast<__nv_bfloat162*>(out + 8 * i) =
              __floats2bfloat162_rn(pair[0] * factor, pair[1] * factor);
        }
        continue;
      }
      const int64_t at = int64_t{c_.work.partial} * c_.a.heads + head;
      float* const out = c_.a.partial.values + at * kTiledRank + column;
#pragma unroll
      for (int i = 0; i < kValues / 8; ++i) {
        const float* const pair = Pair(i, half);
        *reinterpret_cast<float2*>(out + 8 * i) = make_float2(pair[0] * factor, pair[1] * factor);
      }
    }
  }

 private:
  // Maxima seldom grow after the first tiles.
  __device__ __forceinline__ void Rescale(const float* of_rows) {
    const float keep[] = {of_rows[c_.Row()], of_rows[c_.Row() + 8]};
    if (!__any_sync(~0u, keep[0] != 1.0f || keep[1] != 1.0f)) return;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kPart / 2; ++i) values_[part][i] *= keep[i / 2 % 2];
    }
  }

  // The thread's numbers of 8 columns and of the first or second row.
  __device__ __forceinline__ const float* Pair(int eight, int half) const {
    return values_[eight / (kPart / 8)] + eight % (kPart / 8) * 4 + 2 * half;
  }

  const Context& c_;
  const int first_;
  float values_[kParts][kPart / 2] = {};
};

#endif

// Grid [tile of heads][work tile].
template <int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    HopperLatents(const __grid_constant__ Arguments a, const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Context c = {a, a.list[blockIdx.y], shared};
  ReleaseSuccessor();
  if (c.work.row < 0) return;
  if (threadIdx.x == kComputeThreads) {
    PrefetchMap(&map);
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(SharedAddress(&shared.latents_full[i]), 1);
      InitBarrier(SharedAddress(&shared.latents_empty[i]),
                  kCluster * kValueGroups * kGroupThreads / 32);
    }
    for (int i = 0; i < kBuffers; ++i) {
      InitBarrier(SharedAddress(&shared.weights_full[i]), kGroupThreads);
      InitBarrier(SharedAddress(&shared.weights_empty[i]), kValueGroups * kGroupThreads / 32);
    }
    FenceBarrierInit();
  }
  ClusterArrive();
  ClusterWait();
  WaitForPredecessor();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == 0) {
    IncreaseRegisters<kScoreRegisters>();
    Scores scores(c);
    scores.Run();
    SyncThreads(2, kComputeThreads);
  } else if (group <= kValueGroups) {
    IncreaseRegisters<kValueRegisters>();
    Values values(c, group - 1);
    values.template Run<kCluster>();
    SyncThreads(2, kComputeThreads);
    values.Store();
  } else {
    DecreaseRegisters<kLoadRegisters>();
    if (c.warp == 0) LoadLatents<kCluster>(c, &map);
  }
  // The other block may still arrive at the barriers in this block's shared memory.
  if constexpr (kCluster > 1) {
    ClusterArrive();
    ClusterWait();
  }
#endif
}

template <int kCluster>
cudaError_t Prepare() {
  return cudaFuncSetAttribute(
      HopperLatents<kCluster>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
}

template <int kCluster>
cudaError_t Launch(const PortableWork& work,
                   const Arguments& a,
                   const CUtensorMap& map,
                   cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.heads, kHeads)),
                  static_cast<unsigned>(work.work_tiles));
  const OverlappedLaunch launch(grid, dim3(kThreads), kSharedBytes, stream, kCluster);
  return cudaLaunchKernelEx(launch.config(), HopperLatents<kCluster>, a, map);
}

}  // namespace
}  // namespace hopper_latents

cudaError_t PrepareHopperLatents() {
  const cudaError_t error = hopper_latents::Prepare<1>();
  return error != cudaSuccess ? error : hopper_latents::Prepare<2>();
}

cudaError_t LaunchHopperLatents(const PortableWork& work, const AttentionLaunch& call) {
  const KvView& kv = call.kv;
  CUtensorMap map;
  const cudaError_t error = MakePagedTensorMap({.data = kv.base + call.layer * kv.layer_stride,
                                                .token_bytes = kTiledWidth * 2,
                                                .block_tokens = kv.block_tokens,
                                                .block_stride = kv.block_stride,
                                                .blocks = kv.blocks},
                                               kHopperLatentGroup,
                                               &map);
  if (error != cudaSuccess) return error;
  hopper_latents::Arguments a = {};
  a.list = work.list;
  a.tables = work.tables;
  a.block_tokens = kv.block_tokens;
  a.blocks = kv.blocks;
  a.heads = call.shape.q_heads;
  a.scale = call.shape.scale * kLog2E;
  a.q = reinterpret_cast<const __nv_bfloat16*>(call.qkv.data);
  a.q_stride = call.qkv.stride;
  a.out = reinterpret_cast<__nv_bfloat16*>(call.out.data);
  a.out_stride = call.out.stride;
  a.partial = work.combine.partial;
  const bool pairs = CeilDiv(a.heads, kHopperLatentHeads) % 2 == 0;
  return pairs ? hopper_latents::Launch<2>(work, a, map, call.stream)
               : hopper_latents::Launch<1>(work, a, map, call.stream);
}

}  // namespace baton::cuda
