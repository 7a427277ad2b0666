#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/lse_accumulator.cuh"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/latent_request.h"

// Attention to latents with mma.sync. A thread block computes some heads of one row over a part of
// its context: heads are the rows of its matrix products, and each tile of latents is loaded once,
// as keys and as values. A latent is stored as spans of 64 numbers, each span of a tile a swizzled
// matrix (async_copy.cuh).
namespace baton::cuda {
namespace {

constexpr int kSpan = kSwizzledRowBytes / static_cast<int>(sizeof(__nv_bfloat16));
constexpr int kSpans = kTiledWidth / kSpan;
constexpr int kVectors = kTiledWidth / 8;
static_assert(kTiledTokens == kSpan);

template <int kHeads_, int kStages_>
struct Tiling {
  static constexpr int kHeads = kHeads_;
  static constexpr int kStages = kStages_;
  static constexpr int kHeadAtoms = kHeads / 16;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  // For the values, warps divide the numbers.
  static constexpr int kValues = kTiledRank / kWarps;
  static constexpr int kValueAtoms = kValues / 8;
  // For the scores, warps divide heads and tokens.
  static constexpr int kScoreAtoms = std::min(kHeadAtoms, 2);  // of 16 heads
  static constexpr int kHeadWarps = kHeadAtoms / kScoreAtoms;
  static constexpr int kTokenWarps = kWarps / kHeadWarps;
  static constexpr int kTokenAtoms = kTiledTokens / 8 / kTokenWarps;  // of 8 tokens
  static constexpr int kQueryBytes = kSpans * kHeads * kSwizzledRowBytes;
  static constexpr int kStageBytes = kSpans * kTiledTokens * kSwizzledRowBytes;
  static constexpr int kWeightBytes = kHeads * kSwizzledRowBytes;
  // Of each token warp and head: a maximum or a sum. Then, of each head, a factor and a maximum.
  static constexpr int kFloats = (kTokenWarps + 2) * kHeads;
  static constexpr int kBytes = kQueryBytes + kStages * kStageBytes + kWeightBytes +
                                kFloats * static_cast<int>(sizeof(float));
};

struct Arguments {
  const RowTile* list;
  const int32_t* tables;
  const std::byte* latents;  // of the layer
  int64_t block_stride;      // in bytes
  int block_tokens;
  int heads;
  float scale;  // includes the base-2 logarithm of e
  const __nv_bfloat16* q;
  int64_t q_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
  PartialResults partial;
};

__device__ __forceinline__ void LoadTransposed(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ float LargestOfQuad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float SumOfQuad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// One thread block's heads of one work tile.
template <class T>
class Tile {
 public:
  __device__ __forceinline__ Tile(const Arguments& a, const RowTile& work, unsigned char* memory)
      : a_(a),
        work_(work),
        first_head_(static_cast<int>(blockIdx.x) * T::kHeads),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        queries_(static_cast<uint32_t>(__cvta_generic_to_shared(memory))),
        stages_(queries_ + T::kQueryBytes),
        weights_(stages_ + T::kStages * T::kStageBytes),
        of_warps_(reinterpret_cast<float*>(memory + T::kBytes) - T::kFloats),
        keep_(of_warps_ + T::kTokenWarps * T::kHeads),
        largest_(keep_ + T::kHeads) {}

  __device__ __forceinline__ void Run() {
    FetchQueries();
    const int tiles = CeilDiv(work_.end - work_.begin, kTiledTokens);
    if constexpr (T::kStages > 1) Fetch(0, tiles);
    for (int tile = 0; tile < tiles; ++tile) {
      if constexpr (T::kStages == 1) {
        __syncthreads();  // all have multiplied the tile before
        Fetch(tile, tiles);
      }
      asm volatile("cp.async.wait_group 0;");
      __syncthreads();
      if constexpr (T::kStages > 1) Fetch(tile + 1, tiles);
      const uint32_t stage = StageOf(tile);
      ComputeWeights(stage, work_.end - work_.begin - tile * kTiledTokens);
      __syncthreads();
      AddValues(stage);
    }
    Finish();
  }

 private:
  __device__ __forceinline__ uint32_t StageOf(int tile) const {
    return stages_ + static_cast<uint32_t>(tile % T::kStages * T::kStageBytes);
  }

  __device__ __forceinline__ void FetchQueries() {
    const __nv_bfloat16* const q =
        a_.q + work_.row * a_.q_stride + int64_t{first_head_} * kTiledWidth;
    for (int head = warp_; head < T::kHeads; head += T::kWarps) {
      const bool present = first_head_ + head < a_.heads;
      for (int vector = lane_; vector < kVectors; vector += 32) {
        const uint32_t span = queries_ + vector / 8 * T::kHeads * kSwizzledRowBytes;
        CopyVector(SwizzledVector(span, head, vector % 8),
                   present ? q + int64_t{head} * kTiledWidth + vector * 8 : a_.q,
                   present);
      }
    }
    asm volatile("cp.async.commit_group;");
  }

  // Positions behind the last one become zeros.
  __device__ __forceinline__ void Fetch(int tile, int tiles) {
    if (tile < tiles) {
      const uint32_t stage = StageOf(tile);
#pragma unroll
      for (int i = 0; i < kTiledTokens / T::kWarps; ++i) {
        const int token = warp_ * (kTiledTokens / T::kWarps) + i;
        const int position = work_.begin + tile * kTiledTokens + token;
        const bool present = position < work_.end;
        const std::byte* from = a_.latents;
        if (present) {
          const int block = a_.tables[work_.table_start + position / a_.block_tokens];
          from += block * a_.block_stride +
                  position % a_.block_tokens * (kTiledWidth * int{sizeof(__nv_bfloat16)});
        }
        for (int vector = lane_; vector < kVectors; vector += 32) {
          const uint32_t span = stage + vector / 8 * kTiledTokens * kSwizzledRowBytes;
          CopyVector(SwizzledVector(span, token, vector % 8),
                     present ? from + vector * 16 : from,
                     present);
        }
      }
    }
    asm volatile("cp.async.commit_group;");
  }

  // Scores of a warp's heads and tokens; then their exponentials, in weights_, and the factors of
  // what was added before, in keep_. `positions`: those left from the tile's first one on.
  __device__ __forceinline__ void ComputeWeights(uint32_t stage, int positions) {
    const int token_warp = warp_ % T::kTokenWarps;
    const int first_row = warp_ / T::kTokenWarps * T::kScoreAtoms * 16;
    const int first_token = token_warp * T::kTokenAtoms * 8;
    float scores[T::kScoreAtoms][T::kTokenAtoms][4] = {};
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      Multiply(queries_ + span * T::kHeads * kSwizzledRowBytes,
               first_row,
               stage + span * kTiledTokens * kSwizzledRowBytes,
               first_token,
               scores);
    }
    float next[T::kScoreAtoms][2];
#pragma unroll
    for (int i = 0; i < T::kScoreAtoms; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < T::kTokenAtoms; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[i][j][2 * half + e];
            const bool seen = first_token + 8 * j + lane_ % 4 * 2 + e < positions;
            score = seen ? score * a_.scale : -INFINITY;
            largest = fmaxf(largest, score);
          }
        }
        largest = LargestOfQuad(largest);
        const int row = first_row + 16 * i + 8 * half + lane_ / 4;
        if (lane_ % 4 == 0) of_warps_[token_warp * T::kHeads + row] = largest;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T::kScoreAtoms; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 16 * i + 8 * half + lane_ / 4;
        // A tile has a position that is seen, so that this is a number.
        float largest = largest_of_row_[i][half];
#pragma unroll
        for (int w = 0; w < T::kTokenWarps; ++w) {
          largest = fmaxf(largest, of_warps_[w * T::kHeads + row]);
        }
        const float keep = exp2f(largest_of_row_[i][half] - largest);
        largest_of_row_[i][half] = next[i][half] = largest;
        if (token_warp == 0 && lane_ % 4 == 0) keep_[row] = keep;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < T::kTokenAtoms; ++j) {
          const float w0 = exp2f(scores[i][j][2 * half] - next[i][half]);
          const float w1 = exp2f(scores[i][j][2 * half + 1] - next[i][half]);
          sum += w0 + w1;
          const __nv_bfloat162 pair = __floats2bfloat162_rn(w0, w1);
          const int token = first_token + 8 * j;
          const uint32_t to = SwizzledVector(weights_, row, token / 8) + lane_ % 4 * 4;
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(to),
                       "r"(*reinterpret_cast<const uint32_t*>(&pair))
                       : "memory");
        }
        sum_of_row_[i][half] = fmaf(sum_of_row_[i][half], keep, sum);
      }
    }
  }

  // scores += queries · latents, over a span.
  __device__ __forceinline__ void Multiply(
      uint32_t queries,
      int first_row,
      uint32_t latents,
      int first_token,
      float (&scores)[T::kScoreAtoms][T::kTokenAtoms][4]) const {
#pragma unroll
    for (int k = 0; k < kSwizzledRowVectors / 4; ++k) {
      // All loads before the products, which wait for them once.
      uint32_t q[2][T::kScoreAtoms][4];
      uint32_t key[T::kTokenAtoms][4];
#pragma unroll
      for (int i = 0; i < T::kScoreAtoms; ++i) {
        const int row = first_row + 16 * i + lane_ % 16;
        LoadMatrices(q[0][i], SwizzledVector(queries, row, 4 * k + lane_ / 16));
        LoadMatrices(q[1][i], SwizzledVector(queries, row, 4 * k + 2 + lane_ / 16));
      }
#pragma unroll
      for (int j = 0; j < T::kTokenAtoms; ++j) {
        const int row = first_token + 8 * j + lane_ % 8;
        LoadMatrices(key[j], SwizzledVector(latents, row, 4 * k + lane_ / 8));
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int j = 0; j < T::kTokenAtoms; ++j) {
#pragma unroll
          for (int i = 0; i < T::kScoreAtoms; ++i) {
            MultiplyAdd<__nv_bfloat16>(
                scores[i][j], q[part][i], key[j][2 * part], key[j][2 * part + 1]);
          }
        }
      }
    }
  }

  // Adds the warp's numbers of the values of all heads.
  __device__ __forceinline__ void AddValues(uint32_t stage) {
    const int first = warp_ * T::kValues;
    const uint32_t span = stage + first / kSpan * kTiledTokens * kSwizzledRowBytes;
    const int first_vector = first % kSpan / 8;
#pragma unroll
    for (int i = 0; i < T::kHeadAtoms; ++i) {
      const float low = keep_[16 * i + lane_ / 4];
      const float high = keep_[16 * i + 8 + lane_ / 4];
#pragma unroll
      for (int j = 0; j < T::kValueAtoms; ++j) {
        values_[i][j][0] *= low;
        values_[i][j][1] *= low;
        values_[i][j][2] *= high;
        values_[i][j][3] *= high;
      }
    }
#pragma unroll
    for (int k = 0; k < kTiledTokens / 16; ++k) {
      uint32_t w[T::kHeadAtoms][4];
#pragma unroll
      for (int i = 0; i < T::kHeadAtoms; ++i) {
        LoadMatrices(w[i], SwizzledVector(weights_, 16 * i + lane_ % 16, 2 * k + lane_ / 16));
      }
      uint32_t value[T::kValueAtoms / 2][4];
#pragma unroll
      for (int j = 0; j < T::kValueAtoms / 2; ++j) {
        const int vector = first_vector + 2 * j + lane_ / 16;
        LoadTransposed(value[j], SwizzledVector(span, 16 * k + lane_ % 16, vector));
      }
#pragma unroll
      for (int j = 0; j < T::kValueAtoms; ++j) {
#pragma unroll
        for (int i = 0; i < T::kHeadAtoms; ++i) {
          const uint32_t(&pair)[4] = value[j / 2];
          MultiplyAdd<__nv_bfloat16>(values_[i][j], w[i], pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
        }
      }
    }
  }

  // Divides by the sums of exponentials and stores the values.
  __device__ __forceinline__ void Finish() {
    const int token_warp = warp_ % T::kTokenWarps;
    const int first_row = warp_ / T::kTokenWarps * T::kScoreAtoms * 16;
#pragma unroll
    for (int i = 0; i < T::kScoreAtoms; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 16 * i + 8 * half + lane_ / 4;
        const float sum = SumOfQuad(sum_of_row_[i][half]);
        if (lane_ % 4 == 0) of_warps_[token_warp * T::kHeads + row] = sum;
        if (token_warp == 0 && lane_ % 4 == 0) largest_[row] = largest_of_row_[i][half];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < T::kHeadAtoms; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = 16 * i + 8 * half + lane_ / 4;
        const int head = first_head_ + row;
        if (head >= a_.heads) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < T::kTokenWarps; ++w) sum += of_warps_[w * T::kHeads + row];
        Store(head, largest_[row], sum, i, half);
      }
    }
  }

  __device__ __forceinline__ void Store(int head, float largest, float sum, int i, int half) {
    const int first = warp_ * T::kValues + lane_ % 4 * 2;
    const float factor = 1.0f / sum;
    if (work_.partial < 0) {
      __nv_bfloat16* const out =
          a_.out + work_.row * a_.out_stride + int64_t{head} * kTiledRank + first;
#pragma unroll
      for (int j = 0; j < T::kValueAtoms; ++j) {
        const float* const pair = values_[i][j] + 2 * half;
        *reinterpret_cast<__nv_bfloat162*>(out + 8 * j) =
            __floats2bfloat162_rn(pair[0] * factor, pair[1] * factor);
      }
      return;
    }
    const int64_t at = int64_t{work_.partial} * a_.heads + head;
    if (warp_ == 0 && lane_ % 4 == 0) a_.partial.lse[at] = largest + log2f(sum);
    float* const out = a_.partial.values + at * kTiledRank + first;
#pragma unroll
    for (int j = 0; j < T::kValueAtoms; ++j) {
      const float* const pair = values_[i][j] + 2 * half;
      *reinterpret_cast<float2*>(out + 8 * j) = make_float2(pair[0] * factor, pair[1] * factor);
    }
  }

  const Arguments& a_;
  const RowTile& work_;
  const int first_head_;
  const int warp_;
  const int lane_;
  const uint32_t queries_;
  const uint32_t stages_;
  const uint32_t weights_;  // [heads][tokens], a swizzled matrix
  float* const of_warps_;
  float* const keep_;
  float* const largest_;
  float values_[T::kHeadAtoms][T::kValueAtoms][4] = {};
  // Of the rows of the warp's scores. Sums are of the thread's own tokens.
  float largest_of_row_[T::kScoreAtoms][2];
  float sum_of_row_[T::kScoreAtoms][2] = {};

 public:
  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < T::kScoreAtoms; ++i) {
      largest_of_row_[i][0] = largest_of_row_[i][1] = -INFINITY;
    }
  }
};

// Grid [tile of heads][work tile].
template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    TiledLatents(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) unsigned char memory[];
  const RowTile work = a.list[blockIdx.y];
  ReleaseSuccessor();
  WaitForPredecessor();
  if (work.row < 0) return;
  Tile<T> tile(a, work, memory);
  tile.Clear();
  tile.Run();
}

template <class T>
struct Kernel {
  static bool Fits(const DeviceProperties& device) {
    return T::kBytes <= device.block_shared_bytes;
  }
  static cudaError_t Prepare(const DeviceProperties& device) {
    if (!Fits(device)) return cudaSuccess;
    return cudaFuncSetAttribute(
        TiledLatents<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
  }
  static cudaError_t Launch(const PortableWork& work, const Arguments& a, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(CeilDiv(a.heads, T::kHeads)),
                    static_cast<unsigned>(work.work_tiles));
    return LaunchOverlapped(TiledLatents<T>, grid, dim3(T::kThreads), T::kBytes, stream, a);
  }
};

// Calls `call` with the kernel of each tile, those with more heads and stages first, until it
// returns true.
template <class Call>
bool ForKernels(const Call& call) {
  return call(Kernel<Tiling<64, 2>>(), LatentTile{64, 2}) ||
         call(Kernel<Tiling<64, 1>>(), LatentTile{64, 1}) ||
         call(Kernel<Tiling<32, 2>>(), LatentTile{32, 2}) ||
         call(Kernel<Tiling<16, 2>>(), LatentTile{16, 2}) ||
         call(Kernel<Tiling<16, 1>>(), LatentTile{16, 1});
}
static_assert(Tiling<16, 1>::kBytes <= kPortableSharedBytes);

}  // namespace

LatentTile LatentTileFor(int32_t heads, const DeviceProperties& device) {
  LatentTile found;
  ForKernels([&](auto kernel, const LatentTile& tile) {
    if (!kernel.Fits(device)) return false;
    found = tile;
    // Half a tile without heads would be computed for nothing.
    return tile.heads == 16 || heads > tile.heads / 2;
  });
  return found;
}

cudaError_t PrepareTiledLatents(const DeviceProperties& device) {
  cudaError_t error = cudaSuccess;
  ForKernels([&](auto kernel, const LatentTile&) {
    error = kernel.Prepare(device);
    return error != cudaSuccess;
  });
  return error;
}

cudaError_t LaunchTiledLatents(const PortableWork& work,
                               const LatentTile& tile,
                               const AttentionLaunch& call) {
  Arguments a = {};
  a.list = work.list;
  a.tables = work.tables;
  a.latents = call.kv.base + call.layer * call.kv.layer_stride;
  a.block_stride = call.kv.block_stride;
  a.block_tokens = call.kv.block_tokens;
  a.heads = call.shape.q_heads;
  a.scale = call.shape.scale * kLog2E;
  a.q = reinterpret_cast<const __nv_bfloat16*>(call.qkv.data);
  a.q_stride = call.qkv.stride;
  a.out = reinterpret_cast<__nv_bfloat16*>(call.out.data);
  a.out_stride = call.out.stride;
  a.partial = work.combine.partial;
  cudaError_t error = cudaErrorNotSupported;
  ForKernels([&](auto kernel, const LatentTile& one) {
    if (one != tile) return false;
    error = kernel.Launch(work, a, call.stream);
    return true;
  });
  return error;
}

}  // namespace baton::cuda
