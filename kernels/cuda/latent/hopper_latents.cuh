#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/latent_request.h"

// What the warp groups of hopper_latents.cu share: the sizes of tiles, shared memory, and the warp
// that loads latents into it.
namespace baton::cuda::hopper_latents {

constexpr int kTokens = kHopperLatentTokens;
constexpr int kHeads = kHopperLatentHeads;
constexpr int kStages = 3;   // tiles of latents in shared memory
constexpr int kBuffers = 2;  // tiles of weights
constexpr int kGroupThreads = 128;
constexpr int kValueGroups = 2;
constexpr int kComputeThreads = (1 + kValueGroups) * kGroupThreads;
constexpr int kThreads = kComputeThreads + kGroupThreads;
// Registers of a thread. All of a thread block are 512 times 128.
constexpr int kScoreRegisters = 168;
constexpr int kValueRegisters = 160;
constexpr int kLoadRegisters = 24;

constexpr int kSpans = kTiledWidth / kSpanNumbers;
constexpr int kValues = kTiledRank / kValueGroups;  // of a warp group
constexpr int kParts = 2;                           // of them, for one wgmma each
constexpr int kPart = kValues / kParts;
// Queries of these spans are in registers, those of the others in shared memory: the shared memory
// could not feed the products otherwise.
constexpr int kHeldSpans = 7;
constexpr int kScoreSteps = kSpans * kSpanSteps;  // products of a tile's scores
// The product before which the values of the tile before may be added. If they were added sooner,
// the tensor cores would be done with them when the next softmax begins, and would wait for it.
constexpr int kPublishStep = 28;

// A tile of latents is stored as groups of 8 tokens. Of a group, each span of 64 numbers is a
// swizzled matrix of 8 rows.
constexpr int kTokenGroups = kTokens / kHopperLatentGroup;
constexpr int kPieceBytes = kHopperLatentGroup * kSpanBytes;
constexpr int kTokenGroupBytes = kSpans * kPieceBytes;
constexpr int kStageBytes = kTokenGroups * kTokenGroupBytes;
constexpr int kQuerySpanBytes = kHeads * kSpanBytes;
constexpr int kQueryBytes = (kSpans - kHeldSpans) * kQuerySpanBytes;
constexpr int kWeightBytes = kHeads * kSpanBytes;
static_assert(kTokens % 16 == 0 && kTokens * 2 <= kSpanBytes);
// In descriptors, addresses are in units of 16 bytes.
constexpr int kStep = 32 >> 4;  // 16 numbers of k

struct Arguments {
  const RowTile* list;
  const int32_t* tables;
  int block_tokens;
  int blocks;
  int heads;
  float scale;  // includes the base-2 logarithm of e
  const __nv_bfloat16* q;
  int64_t q_stride;
  __nv_bfloat16* out;
  int64_t out_stride;
  PartialResults partial;
};

struct Shared {
  unsigned char stages[kStages][kStageBytes];
  unsigned char queries[kQueryBytes];
  unsigned char weights[kBuffers][kWeightBytes];  // bf16 [heads][tokens], swizzled
  float keep[kBuffers][kHeads];  // by what the values of the tiles before are multiplied
  float factor[kHeads];          // by what the values of all tiles are multiplied
  uint64_t latents_full[kStages];
  uint64_t latents_empty[kStages];
  uint64_t weights_full[kBuffers];
  uint64_t weights_empty[kBuffers];
};
constexpr int kSharedBytes = sizeof(Shared);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The work of a thread block, and a thread's place in its warp group.
struct Context {
  const Arguments& a;
  const RowTile work;
  Shared& shared;
  const int first_head = static_cast<int>(blockIdx.x) * kHeads;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tiles = CeilDiv(work.end - work.begin, kTokens);

  // Of a warp group's accumulators, a thread holds pairs of columns from Column() on, of this head
  // of the thread block and of this one + 8.
  __device__ __forceinline__ int Row() const { return warp * 16 + lane / 4; }
  __device__ __forceinline__ int Column() const { return lane % 4 * 2; }
  __device__ __forceinline__ bool HasHead(int row) const { return first_head + row < a.heads; }
};

// Runs on one warp. Each lane loads one group of tokens of each tile, for both blocks of a cluster.
template <int kCluster>
__device__ __forceinline__ void LoadLatents(const Context& c, const CUtensorMap* map) {
  constexpr int kShare = kTokenGroups / kCluster;
  const int group = (kCluster == 1 ? 0 : static_cast<int>(ClusterRank()) * kShare) + c.lane;
  const int first = c.work.begin + group * kHopperLatentGroup;
  // Blocks behind the context do not exist. Their latents are zeros.
  const auto block_of = [&](int tile) {
    const int position = first + tile * kTokens;
    if (c.lane >= kShare || position >= c.work.end) return c.a.blocks;
    return __ldg(c.a.tables + c.work.table_start + position / c.a.block_tokens);
  };
  int block = block_of(0);
  RingCursor cursor;
  for (int tile = 0; tile < c.tiles; ++tile) {
    WaitBarrier(SharedAddress(&c.shared.latents_empty[cursor.slot]), cursor.parity ^ 1);
    const uint32_t full = SharedAddress(&c.shared.latents_full[cursor.slot]);
    if (c.lane == 0) ArriveExpectTx(full, kStageBytes);
    __syncwarp();
    if (c.lane < kShare) {
      const int position = first + tile * kTokens;
      TmaLoadPaged<kCluster>(SharedAddress(&c.shared.stages[cursor.slot][group * kTokenGroupBytes]),
                             map,
                             position % c.a.block_tokens,
                             block,
                             full);
    }
    block = block_of(tile + 1);
    cursor.Advance(1, kStages);
  }
}

#endif

}  // namespace baton::cuda::hopper_latents
