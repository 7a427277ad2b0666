#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"

// The work items of the wgmma GEMMs of experts (wgmma_gemm.cu), the shared memory of a thread
// block, and the loads of its pipeline stages.
namespace baton::cuda::wgmma_experts {

inline constexpr int32_t kGroupThreads = 128;
inline constexpr int32_t kGroupRows = 64;  // rows of a tile that a consumer warp group multiplies
inline constexpr int32_t kCluster = 2;
inline constexpr int32_t kBlockRows = kWgmmaTileRows / kCluster;
inline constexpr int32_t kConsumers = kBlockRows / kGroupRows;
inline constexpr int32_t kThreads = (kConsumers + 1) * kGroupThreads;
inline constexpr int32_t kProducerThread = kConsumers * kGroupThreads;
inline constexpr int32_t kColumns = 2 * kWgmmaBoxRows;  // weight rows of a tile
inline constexpr int32_t kStages = 4;
inline constexpr int32_t kItems = 2;  // work items that a cluster knows of
inline constexpr uint32_t kBoxBytes = kWgmmaBoxRows * kSpanBytes;
inline constexpr uint32_t kStageBytes = (kColumns + kBlockRows) * kSpanBytes;
inline constexpr uint32_t kBarrierBytes = 1024;
inline constexpr uint32_t kSharedBytes = kBarrierBytes + kStages * kStageBytes;
inline constexpr int32_t kRowStep = kGroupThreads / kSwizzledRowVectors;  // rows copied at a time
inline constexpr int32_t kThreadRows = kBlockRows / kRowStep;
inline constexpr uint32_t kGroupBytes = kGroupRows * kSpanBytes;

enum class WgmmaGemm { kGateUp, kDown };

struct WgmmaArgs {
  CUtensorMap slots;  // kDown: x, for boxes of kGroupRows rows
  const uint4* x = nullptr;
  int32_t x_stride = 0;    // in vectors of 16 bytes
  int32_t spans = 0;       // of kSpanBytes of inputs
  int32_t outputs = 0;     // a multiple of 8
  int32_t second_box = 0;  // weight rows from a tile's first box to its second box
  int32_t column_tiles = 0;
  const CUtensorMap* weights = nullptr;  // one per expert
  // For FP8: the scales of the rows of x, and per expert those of the weight rows.
  const float* x_scales = nullptr;
  const float* const* weight_scales = nullptr;
  const float* const* biases = nullptr;  // per expert those of its weight rows; null: none
  ExpertGate gate = {};                  // kGateUp
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  int32_t* next_item = nullptr;        // items that clusters have taken, besides their first
  const int32_t* slot_rows = nullptr;  // kGateUp: the row of x for a slot
  __nv_bfloat16* out = nullptr;        // [slot][outputs]
};

// Outputs of a tile: each has a row of gate and a row of up, or one row of down.
template <WgmmaGemm kGemm>
inline constexpr int32_t kTileOutputs = kGemm == WgmmaGemm::kGateUp ? kWgmmaBoxRows : kColumns;

// Threads of a block that load.
template <WgmmaGemm kGemm>
inline constexpr int32_t kLoadThreads = kGemm == WgmmaGemm::kGateUp ? kGroupThreads : 32;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The shared memory of a thread block: barriers, the next work items, and the ring of stages. A
// stage holds the weights of a tile, then the block's rows of x.
struct Memory {
  uint32_t full;       // one barrier for each stage: its weights and x have arrived
  uint32_t empty;      // one barrier for each stage: all consumer warps of the cluster have read it
  uint32_t item_full;  // one barrier for each work item: it has arrived
  uint32_t item_empty;  // the same: all warps of the cluster have read it (in block 0)
  uint32_t items;
  uint32_t stages;

  __device__ explicit Memory(const unsigned char* shared)
      : full(SharedAddress(shared)),
        empty(full + kStages * 8),
        item_full(empty + kStages * 8),
        item_empty(item_full + kItems * 8),
        items(item_empty + kItems * 8),
        stages(full + kBarrierBytes) {}
  __device__ uint32_t Full(int32_t slot) const { return full + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t Empty(int32_t slot) const { return empty + static_cast<uint32_t>(slot * 8); }
  __device__ uint32_t ItemFull(int32_t slot) const {
    return item_full + static_cast<uint32_t>(slot * 8);
  }
  __device__ uint32_t ItemEmpty(int32_t slot) const {
    return item_empty + static_cast<uint32_t>(slot * 8);
  }
  __device__ uint32_t Item(int32_t slot) const { return items + static_cast<uint32_t>(slot * 4); }
  __device__ uint32_t Weights(int32_t slot) const {
    return stages + static_cast<uint32_t>(slot) * kStageBytes;
  }
  __device__ uint32_t X(int32_t slot) const { return Weights(slot) + 2 * kBoxBytes; }
};

__device__ __forceinline__ int32_t LoadItem(uint32_t address) {
  int32_t item;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(item) : "r"(address) : "memory");
  return item;
}

// The work items of this cluster. An item is an output tile: the column tiles of a row tile are
// neighbours, so that clusters that run at the same time read the same rows and the same experts
// from the L2 cache. Clusters take items as they finish others, because tiles of fewer rows take
// less time. The producer thread of block 0 takes an item for both blocks.
struct Work {
  int32_t item = static_cast<int32_t>(blockIdx.x) / kCluster;
  int32_t end;
  RingCursor cursor;  // of the next item

  __device__ explicit Work(const WgmmaArgs& a) : end(*a.tile_count * a.column_tiles) {}
  __device__ bool Done() const { return item >= end; }
  // The rows of this thread block; possibly none. A tile of few rows is one warp group's work in
  // each block.
  __device__ ExpertTile Tile(const WgmmaArgs& a) const {
    ExpertTile tile = a.tiles[item / a.column_tiles];
    const int32_t share = tile.rows > kBlockRows ? kBlockRows : kGroupRows;
    const int32_t first = share * static_cast<int32_t>(ClusterRank());
    tile.first_slot += first;
    tile.rows = min(share, tile.rows - first);
    return tile;
  }
  template <WgmmaGemm kGemm>
  __device__ int32_t FirstOutput(const WgmmaArgs& a) const {
    return item % a.column_tiles * kTileOutputs<kGemm>;
  }

  // Takes the next item. Runs on the producer thread of block 0.
  __device__ int32_t Take(const WgmmaArgs& a) const {
    return static_cast<int32_t>(gridDim.x) / kCluster + atomicAdd(a.next_item, 1);
  }
  // Tells both blocks the next item. Runs on the producer thread of each block; `taken` is that of
  // block 0.
  __device__ void Publish(const Memory& memory, int32_t taken) const {
    ArriveExpectTx(memory.ItemFull(cursor.slot), sizeof(int32_t));
    if (ClusterRank() != 0) return;
    WaitBarrier(memory.ItemEmpty(cursor.slot), cursor.parity ^ 1);
#pragma unroll
    for (uint32_t rank = 0; rank < kCluster; ++rank) {
      StoreRemoteAsync(MapToRank(memory.Item(cursor.slot), rank),
                       taken,
                       MapToRank(memory.ItemFull(cursor.slot), rank));
    }
  }
  // Waits for the next item. Runs on all threads of a warp.
  __device__ void Advance(const Memory& memory) {
    WaitBarrier(memory.ItemFull(cursor.slot), cursor.parity);
    item = LoadItem(memory.Item(cursor.slot));
    __syncwarp();
    if (threadIdx.x % 32 == 0) ArriveRemote(MapToRank(memory.ItemEmpty(cursor.slot), 0));
    cursor.Advance(1, kItems);
  }
};

// Loads half of a tile's weights for one stage of both blocks. Runs on the producer thread, which
// tells the stage's barrier of their bytes.
template <WgmmaGemm kGemm>
__device__ __forceinline__ void LoadWeights(const WgmmaArgs& a,
                                            const Memory& memory,
                                            int32_t expert,
                                            int32_t output,
                                            int32_t span,
                                            int slot) {
  const uint32_t rank = ClusterRank();
  TmaLoadMixedMulticast(memory.Weights(slot) + rank * kBoxBytes,
                        a.weights + expert,
                        span * kSpanNumbers,
                        (output + static_cast<int32_t>(rank) * a.second_box) / kMixedRows,
                        memory.Full(slot),
                        kEvictNormal);
}

// Loads the weights of the first tile's first stages of down, and returns their number. Runs on the
// producer thread.
__device__ __forceinline__ int32_t LoadFirstWeights(const WgmmaArgs& a, const Memory& memory) {
  constexpr WgmmaGemm kGemm = WgmmaGemm::kDown;
  const Work work(a);
  if (work.Done()) return 0;
  const int32_t expert = work.Tile(a).expert;
  const int32_t count = min(kStages, a.spans);
  for (int32_t span = 0; span < count; ++span) {
    LoadWeights<kGemm>(a, memory, expert, work.FirstOutput<kGemm>(a), span, span);
  }
  return count;
}

// Loads the stages of gate and up. Runs on the producer warp group, which gathers rows of x: each
// thread copies one vector of each span for some rows.
__device__ __forceinline__ void GatherStages(const WgmmaArgs& a, const Memory& memory) {
  constexpr WgmmaGemm kGemm = WgmmaGemm::kGateUp;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) % kGroupThreads;
  const int32_t row = thread / kSwizzledRowVectors;
  const int32_t vector = thread % kSwizzledRowVectors;
  RingCursor cursor;
  for (Work work(a); !work.Done(); work.Advance(memory)) {
    const int32_t taken = thread == 0 && ClusterRank() == 0 ? work.Take(a) : 0;
    const ExpertTile tile = work.Tile(a);
    const int32_t output = work.FirstOutput<kGemm>(a);
    uint32_t from[kThreadRows];  // in vectors of 16 bytes
#pragma unroll
    for (int32_t i = 0; i < kThreadRows; ++i) {
      const bool present = row + i * kRowStep < tile.rows;
      const int32_t slot = tile.first_slot + row + i * kRowStep;
      const int32_t x_row = present ? a.slot_rows[slot] : slot;
      from[i] = static_cast<uint32_t>(x_row) * static_cast<uint32_t>(a.x_stride) +
                static_cast<uint32_t>(vector);
    }
    for (int32_t span = 0; span < a.spans; ++span) {
      WaitBarrier(memory.Empty(cursor.slot), cursor.parity ^ 1);
      if (thread == 0) {
        ArriveExpectTx(memory.Full(cursor.slot), kCluster * kBoxBytes);
        LoadWeights<kGemm>(a, memory, tile.expert, output, span, cursor.slot);
      }
      const uint32_t to = SwizzledVector(memory.X(cursor.slot), row, vector);
#pragma unroll
      for (int32_t i = 0; i < kThreadRows; ++i) {
        if (row + i * kRowStep >= tile.rows) break;  // nobody reads the products of the other rows
        CopyVector(to + static_cast<uint32_t>(i * kRowStep * kSpanBytes), a.x + from[i], true);
        from[i] += kSwizzledRowVectors;
      }
      ArriveAfterCopies(memory.Full(cursor.slot));
      cursor.Advance(1, kStages);
      // By now, the atomic operation has returned. The next item is known before it is needed.
      if (thread == 0 && span == a.spans / 2) work.Publish(memory, taken);
    }
  }
}

// Loads the stages of down. Runs on the producer warp; its first thread loads by TMA. The weights
// of the first `loaded` stages are under way.
__device__ __forceinline__ void LoadStages(const WgmmaArgs& a,
                                           const Memory& memory,
                                           int32_t loaded) {
  constexpr WgmmaGemm kGemm = WgmmaGemm::kDown;
  const bool leads = threadIdx.x == kProducerThread;
  RingCursor cursor;
  for (Work work(a); !work.Done(); work.Advance(memory)) {
    const int32_t taken = leads && ClusterRank() == 0 ? work.Take(a) : 0;
    const ExpertTile tile = work.Tile(a);
    const int32_t output = work.FirstOutput<kGemm>(a);
    const int32_t boxes = tile.rows > 0 ? CeilDiv(tile.rows, kGroupRows) : 0;  // of x
    const uint32_t bytes = kCluster * kBoxBytes + static_cast<uint32_t>(boxes) * kGroupBytes;
    for (int32_t span = 0; span < a.spans; ++span) {
      WaitBarrier(memory.Empty(cursor.slot), cursor.parity ^ 1);
      if (leads) {
        const uint32_t full = memory.Full(cursor.slot);
        ArriveExpectTx(full, bytes);
        if (--loaded < 0) LoadWeights<kGemm>(a, memory, tile.expert, output, span, cursor.slot);
        for (int32_t box = 0; box < boxes; ++box) {
          TmaLoad(memory.X(cursor.slot) + static_cast<uint32_t>(box) * kGroupBytes,
                  &a.slots,
                  0,
                  tile.first_slot + box * kGroupRows,
                  span,
                  full,
                  kEvictNormal);
        }
      }
      cursor.Advance(1, kStages);
      if (leads && span == a.spans / 2) work.Publish(memory, taken);
    }
  }
}

#endif

}  // namespace baton::cuda::wgmma_experts
