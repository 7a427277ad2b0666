#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/few_rows_plan.h"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/silu.cuh"
#include "kernels/cuda/tensor_map.h"

// out[m][n] = Σ x[m][k] · weight[n][k] for few m is bound by reading the weight. The block's last
// warp streams tiles of the weight and the matching pieces of x through a ring of stages; the other
// four multiply them where they lie: rows of the weight are the rows of the sums, rows of x their
// columns. The ring is filled with weights before the kernel waits for its predecessor, x follows.
namespace baton::cuda {

struct FewRowsArguments {
  CUtensorMap weight;  // boxes of a tile's rows × the spans of a stage
  CUtensorMap x;
  const __nv_bfloat16* bias = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;
  int32_t rows = 0;
  int32_t outputs = 0;
  int32_t k_spans = 0;
  bool f32 = false;
  bool accumulate = false;
  FewRowsPlan plan;
};

// Of a block; the last warp fetches.
constexpr int32_t FewRowsThreads(int32_t teams) {
  return (teams * kFewRowsWarps + 1) * 32;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The block's shared memory: barriers, ring, and what warps lay down to rearrange or add up.
struct FewRowsMemory {
  uint32_t full;   // a barrier a stage: weights and x have come
  uint32_t empty;  // the same: the warps have read them
  uint32_t ring;
  uint32_t staging;  // a team that is alone
  uint32_t sums;

  __device__ FewRowsMemory(const FewRowsPlan& plan, const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kFewRowsStages * 8),
        ring(full + kFewRowsHead),
        staging(ring + static_cast<uint32_t>(plan.stages * plan.stage_bytes)),
        sums(ring + static_cast<uint32_t>(plan.sums_at)) {}
  __device__ uint32_t Stage(const FewRowsPlan& plan, int32_t slot) const {
    return ring + static_cast<uint32_t>(slot * plan.stage_bytes);
  }
};

// Place in a ring.
struct FewRowsCursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance(int32_t steps, int32_t stages) {
    for (slot += steps; slot >= stages; slot -= stages) parity ^= 1;
  }
};

// The tiles of this block and its part of k.
struct FewRowsWork {
  int32_t first_tile;
  int32_t passes;
  int32_t rank;
  int32_t first_span;

  __device__ explicit FewRowsWork(const FewRowsArguments& a) {
    const FewRowsPlan& plan = a.plan;
    first_tile = static_cast<int32_t>(blockIdx.x) / plan.cluster;
    passes = (plan.tiles - first_tile + plan.clusters - 1) / plan.clusters;
    rank = static_cast<int32_t>(blockIdx.x) % plan.cluster;
    first_span = rank * (a.k_spans / plan.cluster);
  }
};

// A thread of the last warp.
template <bool kPairs>
__device__ __forceinline__ void FetchFewRows(const FewRowsArguments& a,
                                             const FewRowsWork& work,
                                             const FewRowsMemory& memory) {
  const FewRowsPlan& plan = a.plan;
  const int32_t total = work.passes * plan.rounds;
  int32_t output = work.first_tile * plan.tile_outputs;
  int32_t weight_span = work.first_span;
  int32_t round = 0;
  const auto fetch_weight = [&](int32_t slot) {
    const uint32_t barrier = memory.full + static_cast<uint32_t>(slot * 8);
    const uint32_t to = memory.Stage(plan, slot);
    ArriveExpecting(barrier, static_cast<uint32_t>(plan.stage_bytes));
    FetchBox(to, &a.weight, 0, output, weight_span, barrier, kKeepNormally);
    if (kPairs) {
      FetchBox(to + static_cast<uint32_t>(plan.weight_bytes / 2),
               &a.weight,
               0,
               a.outputs + output,
               weight_span,
               barrier,
               kKeepNormally);
    }
    weight_span += plan.spans;
    if (++round == plan.rounds) {
      round = 0;
      weight_span = work.first_span;
      output += plan.clusters * plan.tile_outputs;
    }
  };
  int32_t input_round = 0;
  const auto fetch_input = [&](int32_t slot) {
    FetchBox(memory.Stage(plan, slot) + static_cast<uint32_t>(plan.weight_bytes),
             &a.x,
             0,
             0,
             work.first_span + input_round * plan.spans,
             memory.full + static_cast<uint32_t>(slot * 8),
             kKeepLong);
    if (++input_round == plan.rounds) input_round = 0;
  };

  const int32_t early = min(plan.stages, total);
  for (int32_t slot = 0; slot < early; ++slot) fetch_weight(slot);
  WaitForPredecessor();
  for (int32_t slot = 0; slot < early; ++slot) fetch_input(slot);
  FewRowsCursor cursor;
  for (int32_t i = early; i < total; ++i) {
    AwaitPhase(memory.empty + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
    fetch_weight(cursor.slot);
    fetch_input(cursor.slot);
    cursor.Advance(1, plan.stages);
  }
}

// Adds the product of a stage to the sums; with kPairs the second half of the matrices is up's.
// Commits each span's products by themselves: ptxas puts an empty product where a loop of them ends
// without that. `begun` is called once the first span's are under way.
template <int kGroup, int kMatrices, bool kPairs, class Begun>
__device__ __forceinline__ void MultiplyStage(const FewRowsPlan& plan,
                                              uint32_t stage,
                                              float (&sums)[kMatrices][kGroup / 2],
                                              const Begun& begun) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const auto blocks = [](int32_t bytes) { return static_cast<uint64_t>(bytes >> 4); };
  const uint64_t span_blocks = blocks(plan.tile_outputs * kSpanNumbers * 2);
  const uint64_t up = blocks(plan.weight_bytes / 2);
  uint64_t weight = MatrixAt(stage);
  uint64_t x = MatrixAt(stage + static_cast<uint32_t>(plan.weight_bytes));
  for (int32_t span = 0; span < plan.spans; ++span) {
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kSpanNumbers / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kMatrices; ++i) {
        const uint64_t at = weight + static_cast<uint64_t>(step * 2) + (i >= kHalf ? up : 0) +
                            static_cast<uint64_t>(i % kHalf * (kFewRowsMatrix * 128 / 16));
        MultiplyMatrices<kGroup>(sums[i], at, x + static_cast<uint64_t>(step * 2));
      }
    }
    CommitProducts();
    if (span == 0) begun();
    weight += span_blocks;
    x += blocks(kGroup * kSpanNumbers * 2);
  }
}

// What four outputs are added to.
__device__ __forceinline__ float4 LoadBefore(const FewRowsArguments& a,
                                             int32_t row,
                                             int32_t output) {
  if (!a.accumulate) return make_float4(0, 0, 0, 0);
  const int64_t at = row * a.out_stride + output;
  if (a.f32) return *reinterpret_cast<const float4*>(static_cast<const float*>(a.out) + at);
  const uint2 pairs =
      *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(a.out) + at);
  return make_float4(__uint_as_float(pairs.x << 16),
                     __uint_as_float(pairs.x & 0xffff0000u),
                     __uint_as_float(pairs.y << 16),
                     __uint_as_float(pairs.y & 0xffff0000u));
}

__device__ __forceinline__ float4 Add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Four sums of neighbouring outputs become results.
__device__ __forceinline__ void PutFour(
    const FewRowsArguments& a, int32_t row, int32_t output, float4 sum, float4 before) {
  if (a.bias != nullptr) {
    sum = Add(sum,
              make_float4(__bfloat162float(a.bias[output]),
                          __bfloat162float(a.bias[output + 1]),
                          __bfloat162float(a.bias[output + 2]),
                          __bfloat162float(a.bias[output + 3])));
  }
  sum = Add(sum, before);
  const int64_t at = row * a.out_stride + output;
  if (a.f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(a.out) + at) = sum;
    return;
  }
  const __nv_bfloat162 low = __floats2bfloat162_rn(sum.x, sum.y);
  const __nv_bfloat162 high = __floats2bfloat162_rn(sum.z, sum.w);
  *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.out) + at) = make_uint2(
      *reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
}

__device__ __forceinline__ float4 LoadShared4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void StoreShared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

// Finishes a tile whose sums are whole. Each warp turns its 16 outputs of a matrix round in shared
// memory, so that it writes neighbouring outputs together.
template <int kGroup, int kMatrices, bool kPairs>
__device__ __forceinline__ void PutTile(const FewRowsArguments& a,
                                        uint32_t staging,
                                        int32_t first_output,
                                        float (&sums)[kMatrices][kGroup / 2]) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const uint32_t mine = staging + static_cast<uint32_t>(warp * kGroup * kFewRowsStaging);
  const uint32_t to = mine + static_cast<uint32_t>(lane % 4 * 2 * kFewRowsStaging + lane / 4 * 4);
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
#pragma unroll
    for (int e = 0; e < kGroup / 2; ++e) {
      const float value = kPairs ? SiluMul(sums[i][e], sums[i + kMatrices - kHalf][e]) : sums[i][e];
      const int row = e / 4 * 8 + e % 2;
      StoreShared(to + static_cast<uint32_t>(row * kFewRowsStaging + e / 2 % 2 * 32), value);
    }
    __syncwarp();
    const int32_t within = i * kFewRowsMatrix + warp * 16 + lane % 4 * 4;
    const int32_t output = first_output + within;
    if (within < a.plan.tile_outputs && output < a.outputs) {
      for (int32_t row = lane / 4; row < min(kGroup, a.rows); row += 8) {
        PutFour(a,
                row,
                output,
                LoadShared4(mine + static_cast<uint32_t>(row * kFewRowsStaging + lane % 4 * 16)),
                LoadBefore(a, row, output));
      }
    }
    __syncwarp();
  }
}

// Bytes between the rows of x in sums that are laid down, and in those of a team.
struct FewRowsSums {
  int32_t row_bytes;
  int32_t half_bytes;
  int32_t team_bytes;

  __device__ FewRowsSums(const FewRowsPlan& plan, bool pairs)
      : row_bytes((plan.tile_outputs + 4) * 4),
        half_bytes(plan.row_group * row_bytes),
        team_bytes(pairs ? 2 * half_bytes : half_bytes) {}
};

// Lays down a team's sums of a tile: [half][row of x][output].
template <int kGroup, int kMatrices, bool kPairs>
__device__ __forceinline__ void LayDownTile(const FewRowsPlan& plan,
                                            uint32_t to,
                                            const float (&sums)[kMatrices][kGroup / 2]) {
  constexpr int kHalf = kPairs ? kMatrices / 2 : kMatrices;
  const FewRowsSums layout(plan, kPairs);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / 32 % kFewRowsWarps;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kMatrices; ++i) {
    const int32_t first = i % kHalf * kFewRowsMatrix + warp * 16 + lane / 4;
    const int32_t line =
        i / kHalf * layout.half_bytes + lane % 4 * 2 * layout.row_bytes + first * 4;
#pragma unroll
    for (int e = 0; e < kGroup / 2; ++e) {
      if (first + e / 2 % 2 * 8 >= plan.tile_outputs) continue;
      const int32_t at = line + (e / 4 * 8 + e % 2) * layout.row_bytes + e / 2 % 2 * 32;
      StoreShared(to + static_cast<uint32_t>(at), sums[i][e]);
    }
  }
}

// This block's share of a tile's outputs, four at a time: the blocks of a cluster share them out.
struct FewRowsShare {
  int32_t first;  // four
  int32_t count;  // fours of a row of x
  int32_t tile_output;

  __device__ FewRowsShare(const FewRowsPlan& plan, const FewRowsWork& work, int32_t tile)
      : tile_output(tile * plan.tile_outputs) {
    const int32_t fours = plan.tile_outputs / 4;
    const int32_t share = (fours + plan.cluster - 1) / plan.cluster;
    first = work.rank * share;
    count = max(min(share, fours - first), 0);
  }
  __device__ int32_t Row(int32_t item) const { return item / count; }
  __device__ int32_t Four(int32_t item) const { return first + item % count; }
  __device__ int32_t Output(int32_t item) const { return tile_output + Four(item) * 4; }
  __device__ bool Has(const FewRowsArguments& a, int32_t item) const {
    return item < a.rows * count && Output(item) < a.outputs;
  }
};

// Adds up what all teams have laid down for a share, in order of k and teams. `before` is what
// the thread's first outputs are added to.
template <bool kPairs>
__device__ __forceinline__ void PutShare(const FewRowsArguments& a,
                                         const FewRowsShare& share,
                                         uint32_t sums,
                                         float4 before) {
  const FewRowsPlan& plan = a.plan;
  const FewRowsSums layout(plan, kPairs);
  const auto sum = [&](uint32_t at) {
    float4 total = make_float4(0, 0, 0, 0);
    for (int32_t rank = 0; rank < plan.cluster; ++rank) {
      const uint32_t there = plan.cluster == 1 ? at : AddressIn(at, static_cast<uint32_t>(rank));
      for (int32_t team = 0; team < plan.teams; ++team) {
        const uint32_t part = there + static_cast<uint32_t>(team * layout.team_bytes);
        total = Add(total, plan.cluster == 1 ? LoadShared4(part) : LoadInCluster4(part));
      }
    }
    return total;
  };
  const int32_t threads = plan.teams * kFewRowsWarps * 32;
  const auto first = static_cast<int32_t>(threadIdx.x);
  for (int32_t item = first; item < a.rows * share.count; item += threads) {
    if (!share.Has(a, item)) continue;
    const int32_t row = share.Row(item);
    const uint32_t at =
        sums + static_cast<uint32_t>(row * layout.row_bytes + share.Four(item) * 16);
    if (item != first) before = LoadBefore(a, row, share.Output(item));
    float4 total = sum(at);
    if (kPairs) {
      const float4 up = sum(at + static_cast<uint32_t>(layout.half_bytes));
      total = make_float4(SiluMul(total.x, up.x),
                          SiluMul(total.y, up.y),
                          SiluMul(total.z, up.z),
                          SiluMul(total.w, up.w));
    }
    PutFour(a, row, share.Output(item), total, before);
  }
}

// All teams of the block, not the warp that fetches.
template <int kTeams>
__device__ __forceinline__ void SyncTeams() {
  asm volatile("barrier.sync 1, %0;" ::"n"(kTeams * kFewRowsWarps * 32) : "memory");
}

// The warps that multiply. Teams take stages in turn.
template <int kGroup, int kMatrices, bool kPairs, int kTeams>
__device__ __forceinline__ void MultiplyFewRows(const FewRowsArguments& a,
                                                const FewRowsWork& work,
                                                const FewRowsMemory& memory) {
  const FewRowsPlan& plan = a.plan;
  const FewRowsSums layout(plan, kPairs);
  const int32_t team = static_cast<int32_t>(threadIdx.x) / (kFewRowsWarps * 32);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const bool tells = threadIdx.x % 32 == 0;
  const auto empty_of = [&](int32_t slot) {
    return memory.empty + static_cast<uint32_t>(slot * 8);
  };
  int32_t round = team;  // of all passes
  FewRowsCursor cursor;
  cursor.Advance(team, plan.stages);
  WaitForPredecessor();
  for (int32_t pass = 0; pass < work.passes; ++pass) {
    const int32_t tile = work.first_tile + pass * plan.clusters;
    const FewRowsShare share(plan, work, tile);
    // Early: it comes while the product is computed.
    float4 before = make_float4(0, 0, 0, 0);
    if (plan.parted() && share.Has(a, thread)) {
      before = LoadBefore(a, share.Row(thread), share.Output(thread));
    }
    float sums[kMatrices][kGroup / 2];
#pragma unroll
    for (int i = 0; i < kMatrices; ++i) {
#pragma unroll
      for (int e = 0; e < kGroup / 2; ++e) sums[i][e] = 0;
    }
    [[maybe_unused]] int32_t last = -1;  // stage that is being read
    for (; round < (pass + 1) * plan.rounds; round += kTeams) {
      AwaitPhase(memory.full + static_cast<uint32_t>(cursor.slot * 8), cursor.parity);
      const auto begun = [&] {
        if constexpr (kTeams == 1) {
          // The stage before has been read; the next one's products go on meanwhile.
          AwaitProducts<1>();
          if (tells && last >= 0) Arrive(empty_of(last));
          last = cursor.slot;
        }
      };
      MultiplyStage<kGroup, kMatrices, kPairs>(plan, memory.Stage(plan, cursor.slot), sums, begun);
      if constexpr (kTeams > 1) {
        // Each must not keep a stage until its next comes: the ring may hold no more.
        AwaitProducts<0>();
        if (tells) Arrive(empty_of(cursor.slot));
      }
      cursor.Advance(kTeams, plan.stages);
    }
    if constexpr (kTeams == 1) {
      AwaitProducts<0>();
      if (tells) Arrive(empty_of(last));
    }
    if (!plan.parted()) {
      PutTile<kGroup, kMatrices, kPairs>(a, memory.staging, tile * plan.tile_outputs, sums);
      continue;
    }
    SyncTeams<kTeams>();  // no team reads any more what lies there
    LayDownTile<kGroup, kMatrices, kPairs>(
        plan, memory.sums + static_cast<uint32_t>(team * layout.team_bytes), sums);
    if (plan.cluster == 1) {
      SyncTeams<kTeams>();
    } else {
      ArriveAtCluster();
      AwaitCluster();
    }
    PutShare<kPairs>(a, share, memory.sums, before);
  }
}

#endif

// kGroup: rows of x, filled up; kMatrices, kTeams: the plan's.
template <int kGroup, int kMatrices, bool kPairs, int kTeams>
__global__ void __launch_bounds__(FewRowsThreads(kTeams), 1)
    FewRowsKernel(const __grid_constant__ FewRowsArguments a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const FewRowsMemory memory(a.plan, shared);
  const FewRowsWork work(a);
  constexpr int32_t kFetching = kTeams * kFewRowsWarps * 32;
  if (threadIdx.x == kFetching) {
    PrefetchMap(&a.weight);
    for (int32_t i = 0; i < a.plan.stages; ++i) {
      InitBarrier(memory.full + static_cast<uint32_t>(i * 8), 1);
      InitBarrier(memory.empty + static_cast<uint32_t>(i * 8), kFewRowsWarps);
    }
    PublishBarriers();
    PrefetchMap(&a.x);
  }
  __syncthreads();
  ReleaseSuccessor();
  if (threadIdx.x < kFetching) {
    MultiplyFewRows<kGroup, kMatrices, kPairs, kTeams>(a, work, memory);
  } else {
    if (threadIdx.x == kFetching) FetchFewRows<kPairs>(a, work, memory);
    __syncwarp();
    if (a.plan.cluster > 1) {
      ArriveAtCluster();
      AwaitCluster();
    }
  }
  if (a.plan.cluster == 1) return;
  // Others may still read this block's shared memory.
  ArriveAtCluster();
  AwaitCluster();
#endif
}

}  // namespace baton::cuda
