#include <algorithm>

#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ring_cursor.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"
#include "kernels/cuda/rows/silu.cuh"

// Grouped GEMMs for Hopper, for steps in which the experts have several rows. Clusters of two
// thread blocks are persistent: each takes one output tile, of 256 rows × 256 weight rows, after
// the other. Each block computes half of the rows. Its producer warp group streams the tile through
// a ring of pipeline stages of 128 bytes of inputs, 64 in bf16 or 128 in FP8: weights by TMA, where
// each block loads half for both (multicast), because the L2 cache's bandwidth would be the bound
// otherwise; rows of x by cp.async, because they are gathered. Each of two consumer warp groups
// multiplies 64 rows by all weight rows of the tile, and applies the scales of FP8 operands to the
// accumulators. Inputs are accumulated in order, so that an output's bits depend on its row and its
// weights alone.
namespace baton::cuda {
namespace {

constexpr int32_t kGroupThreads = 128;
constexpr int32_t kGroupRows = 64;  // rows of a tile that a consumer warp group multiplies
constexpr int32_t kCluster = 2;
constexpr int32_t kBlockRows = kWgmmaTileRows / kCluster;
constexpr int32_t kConsumers = kBlockRows / kGroupRows;
constexpr int32_t kThreads = (kConsumers + 1) * kGroupThreads;
constexpr int32_t kProducerThread = kConsumers * kGroupThreads;
constexpr int32_t kColumns = 2 * kWgmmaBoxRows;  // weight rows of a tile
constexpr int32_t kStages = 4;
constexpr int32_t kItems = 2;  // work items that a cluster knows of
constexpr uint32_t kBoxBytes = kWgmmaBoxRows * kSpanBytes;
constexpr uint32_t kStageBytes = (kColumns + kBlockRows) * kSpanBytes;
constexpr uint32_t kBarrierBytes = 1024;
constexpr uint32_t kSharedBytes = kBarrierBytes + kStages * kStageBytes;
constexpr int32_t kRowStep = kGroupThreads / kSwizzledRowVectors;  // rows copied at a time
constexpr int32_t kThreadRows = kBlockRows / kRowStep;

enum class WgmmaGemm { kGateUp, kDown };

struct WgmmaArgs {
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
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  int32_t* next_item = nullptr;        // items that clusters have taken, besides their first
  const int32_t* slot_rows = nullptr;  // kGateUp: the row of x for a slot
  __nv_bfloat16* out = nullptr;        // [slot][outputs]
};

// Outputs of a tile: each has a row of gate and a row of up, or one row of down.
template <WgmmaGemm kGemm>
constexpr int32_t kTileOutputs = kGemm == WgmmaGemm::kGateUp ? kWgmmaBoxRows : kColumns;

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

// Loads half of a tile's weights for one stage of both blocks. Runs on the producer thread.
template <WgmmaGemm kGemm>
__device__ __forceinline__ void LoadWeights(const WgmmaArgs& a,
                                            const Memory& memory,
                                            int32_t expert,
                                            int32_t output,
                                            int32_t span,
                                            int slot) {
  const uint32_t barrier = memory.Full(slot);
  const uint32_t rank = ClusterRank();
  ArriveExpectTx(barrier, kCluster * kBoxBytes);
  TmaLoadMixedMulticast(memory.Weights(slot) + rank * kBoxBytes,
                        a.weights + expert,
                        span * kSpanNumbers,
                        (output + static_cast<int32_t>(rank) * a.second_box) / kMixedRows,
                        barrier,
                        kEvictNormal);
}

// Loads the weights of the first tile's first stages, and returns their number. Runs on the
// producer thread.
template <WgmmaGemm kGemm>
__device__ __forceinline__ int32_t LoadFirstWeights(const WgmmaArgs& a, const Memory& memory) {
  const Work work(a);
  if (work.Done()) return 0;
  const int32_t expert = work.Tile(a).expert;
  const int32_t count = min(kStages, a.spans);
  for (int32_t span = 0; span < count; ++span) {
    LoadWeights<kGemm>(a, memory, expert, work.FirstOutput<kGemm>(a), span, span);
  }
  return count;
}

// Runs on the producer warp group. Each thread copies one vector of each span for some rows. The
// weights of the first `loaded` stages are under way.
template <WgmmaGemm kGemm>
__device__ __forceinline__ void ProduceStages(const WgmmaArgs& a,
                                              const Memory& memory,
                                              int32_t loaded) {
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
      const int32_t x_row = kGemm == WgmmaGemm::kGateUp && present ? a.slot_rows[slot] : slot;
      from[i] = static_cast<uint32_t>(x_row) * static_cast<uint32_t>(a.x_stride) +
                static_cast<uint32_t>(vector);
    }
    for (int32_t span = 0; span < a.spans; ++span) {
      WaitBarrier(memory.Empty(cursor.slot), cursor.parity ^ 1);
      if (thread == 0 && --loaded < 0) {
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

__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// A consumer thread holds accumulators of two rows of a tile: of this row, and of this row + 8.
__device__ __forceinline__ int32_t AccumulatorRow() {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  return thread / 32 * 16 + thread % 32 / 4;
}

// The scales of a thread's rows and of the tile's weight rows, for FP8. The thread loads them
// before the products of a tile, so that it does not wait for memory after the products.
template <WgmmaGemm kGemm, class Number>
struct TileScales {
  float rows[2] = {1, 1};
  const float* weights = nullptr;  // of all weight rows of the expert

  __device__ TileScales(const WgmmaArgs& a, const ExpertTile& tile) {
    if constexpr (kIsFp8<Number>) {
      weights = a.weight_scales[tile.expert];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t row = AccumulatorRow() + half * 8;
        if (row >= tile.rows) continue;
        const int32_t slot = tile.first_slot + row;
        rows[half] = a.x_scales[kGemm == WgmmaGemm::kGateUp ? a.slot_rows[slot] : slot];
      }
    }
  }
};

// Writes a warp group's rows of a tile. Of every kMixedRows columns, a thread holds eight
// neighbouring outputs in two rows, because of the order in which TMA loads the weight rows.
template <WgmmaGemm kGemm, class Number>
__device__ __forceinline__ void StoreTile(const WgmmaArgs& a,
                                          const ExpertTile& tile,
                                          const TileScales<kGemm, Number>& scales,
                                          int32_t first_output,
                                          const float (&accumulators)[kColumns / 2]) {
  constexpr int kUp = kWgmmaBoxRows / 2;  // from the accumulator of gate to that of up
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t row = AccumulatorRow();
  const int32_t column = first_output + thread % 4 * 8;
  __nv_bfloat16* const to = a.out + int64_t{tile.first_slot + row} * a.outputs + column;
#pragma unroll
  for (int eights = 0; eights < kTileOutputs<kGemm> / 8; eights += 4) {
    const bool exists = column + eights * 8 < a.outputs;
    float weight_scales[2][8];  // for FP8: of gate and up, or of down
    if constexpr (kIsFp8<Number>) {
      // Outputs that do not exist take scales of others.
      const float* from = scales.weights + (exists ? column + eights * 8 : 0);
      Read8(from, weight_scales[0]);
      if constexpr (kGemm == WgmmaGemm::kGateUp) Read8(from + a.outputs, weight_scales[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The product of weight row `i` of the thread's eight; `part` 1 is that of up.
      const auto product = [&](int part, int i) {
        const float sum = accumulators[part * kUp + (eights + i / 2) * 4 + half * 2 + i % 2];
        if constexpr (kIsFp8<Number>) {
          return sum * (scales.rows[half] * weight_scales[part][i]);
        } else {
          return sum;
        }
      };
      uint32_t values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kGemm == WgmmaGemm::kGateUp) {
          values[i] = PackPair(SiluMul(product(0, 2 * i), product(1, 2 * i)),
                               SiluMul(product(0, 2 * i + 1), product(1, 2 * i + 1)));
        } else {
          values[i] = PackPair(product(0, 2 * i), product(0, 2 * i + 1));
        }
      }
      if (exists && row + half * 8 < tile.rows) {
        *reinterpret_cast<uint4*>(to + half * 8 * a.outputs + eights * 8) =
            make_uint4(values[0], values[1], values[2], values[3]);
      }
    }
  }
}

// Runs on each consumer warp group.
template <WgmmaGemm kGemm, class Number>
__device__ __forceinline__ void ConsumeStages(const WgmmaArgs& a, const Memory& memory) {
  const int32_t first_row = static_cast<int32_t>(threadIdx.x) / kGroupThreads * kGroupRows;
  const uint32_t lane = threadIdx.x % 32;
  const auto release = [&](int32_t slot) {
    if (lane < kCluster) ArriveRemote(MapToRank(memory.Empty(slot), lane));
  };
  RingCursor cursor;
  for (Work work(a); !work.Done(); work.Advance(memory)) {
    const ExpertTile tile = work.Tile(a);
    if (first_row >= tile.rows) {
      for (int32_t span = 0; span < a.spans; ++span) {
        WaitBarrier(memory.Full(cursor.slot), cursor.parity);
        release(cursor.slot);
        cursor.Advance(1, kStages);
      }
      continue;
    }
    const TileScales<kGemm, Number> scales(a, tile);
    float accumulators[kColumns / 2];
#pragma unroll
    for (float& sum : accumulators) sum = 0;
    int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
    for (int32_t span = 0; span < a.spans; ++span) {
      WaitBarrier(memory.Full(cursor.slot), cursor.parity);
      FenceAsyncProxy();  // cp.async wrote x through the generic proxy
      const uint64_t weights = SmemDescriptor(memory.Weights(cursor.slot));
      const uint64_t x =
          SmemDescriptor(memory.X(cursor.slot) + static_cast<uint32_t>(first_row * kSpanBytes));
      WgmmaFence();
#pragma unroll
      for (int step = 0; step < kSpanSteps; ++step) {
        WgmmaMultiply<kColumns, Number>(accumulators, x + step * 2, weights + step * 2);
      }
      WgmmaCommit();
      // The WGMMAs of the previous stage have completed, so that its slot can be refilled.
      WgmmaWait<1>();
      if (last >= 0) release(last);
      last = cursor.slot;
      cursor.Advance(1, kStages);
    }
    WgmmaWait<0>();
    release(last);
    StoreTile<kGemm, Number>(a, tile, scales, work.FirstOutput<kGemm>(a), accumulators);
  }
}

#endif

template <WgmmaGemm kGemm, class Number>
__global__ void __launch_bounds__(kThreads, 1) WgmmaKernel(const __grid_constant__ WgmmaArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const Memory memory(shared);
  if (threadIdx.x == kProducerThread) {
    for (int32_t i = 0; i < kStages; ++i) {
      InitBarrier(memory.Full(i), kGroupThreads + 1);
      InitBarrier(memory.Empty(i), kCluster * kConsumers * kGroupThreads / 32);
    }
    for (int32_t i = 0; i < kItems; ++i) {
      InitBarrier(memory.ItemFull(i), 1);
      InitBarrier(memory.ItemEmpty(i), kCluster * kThreads / 32);
    }
    FenceBarrierInit();
  }
  ClusterArrive();
  ClusterWait();
  int32_t loaded = 0;
  // The grouping is complete before the GEMM of gate and up lets that of down start.
  if (kGemm == WgmmaGemm::kDown && threadIdx.x == kProducerThread) {
    loaded = LoadFirstWeights<kGemm>(a, memory);
  }
  WaitForPredecessor();
  ReleaseSuccessor();
  if (threadIdx.x >= kProducerThread) {
    DecreaseRegisters<40>();
    ProduceStages<kGemm>(a, memory, loaded);
  } else {
    IncreaseRegisters<232>();
    ConsumeStages<kGemm, Number>(a, memory);
  }
  // The other block may still arrive at the barriers in this block's shared memory.
  ClusterArrive();
  ClusterWait();
#endif
}

template <WgmmaGemm kGemm>
cudaError_t LaunchWgmma(WgmmaArgs args,
                        int64_t rows,
                        const PreparedExperts& experts,
                        const ExpertScratch& scratch,
                        cudaStream_t stream) {
  args.column_tiles = CeilDiv(args.outputs, kTileOutputs<kGemm>);
  args.tiles = scratch.tiles;
  args.tile_count = scratch.tile_count;
  const auto kernel = args.weight_scales == nullptr ? WgmmaKernel<kGemm, __nv_bfloat16>
                                                    : WgmmaKernel<kGemm, __nv_fp8_e4m3>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (error != cudaSuccess) return error;
  const int64_t most = MaxTiles(experts, rows) * args.column_tiles;
  const int64_t clusters = std::min<int64_t>(most, experts.sm_count / kCluster);
  const OverlappedLaunch launch(dim3(static_cast<unsigned>(clusters * kCluster)),
                                dim3(kThreads),
                                kSharedBytes,
                                stream,
                                kCluster);
  return cudaLaunchKernelEx(launch.config(), kernel, args);
}

}  // namespace

cudaError_t LaunchWgmmaGateUp(const Tensor& x,
                              const PreparedExperts& experts,
                              const ExpertScratch& scratch,
                              cudaStream_t stream) {
  const bool fp8 = experts.gate_up_scales != nullptr;
  const int64_t row_bytes = int64_t{experts.hidden} * (fp8 ? 1 : 2);
  const int64_t stride_bytes = fp8 ? row_bytes : 2 * x.stride;
  WgmmaArgs args;
  args.x = reinterpret_cast<const uint4*>(fp8 ? scratch.fp8_x.data : x.data);
  args.x_stride = static_cast<int32_t>(stride_bytes / int64_t{sizeof(uint4)});
  args.x_scales = scratch.fp8_x.scales;
  args.spans = static_cast<int32_t>(row_bytes / kSpanBytes);
  args.next_item = scratch.next_items;
  args.outputs = experts.width;
  args.second_box = experts.width;
  args.weights = experts.gate_up_maps;
  args.weight_scales = experts.gate_up_scales;
  args.slot_rows = scratch.slot_rows;
  args.out = scratch.inner;
  return LaunchWgmma<WgmmaGemm::kGateUp>(args, x.rows, experts, scratch, stream);
}

cudaError_t LaunchWgmmaDown(int64_t rows,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch,
                            cudaStream_t stream) {
  const bool fp8 = experts.down_scales != nullptr;
  const int64_t row_bytes = int64_t{experts.width} * (fp8 ? 1 : 2);
  const void* const x = fp8 ? static_cast<const void*>(scratch.fp8_inner.data) : scratch.inner;
  WgmmaArgs args;
  args.x = static_cast<const uint4*>(x);
  args.x_stride = static_cast<int32_t>(row_bytes / int64_t{sizeof(uint4)});
  args.x_scales = scratch.fp8_inner.scales;
  args.spans = static_cast<int32_t>(row_bytes / kSpanBytes);
  args.next_item = scratch.next_items + 1;
  args.outputs = experts.hidden;
  args.second_box = kWgmmaBoxRows;
  args.weights = experts.down_maps;
  args.weight_scales = experts.down_scales;
  args.out = scratch.results;
  return LaunchWgmma<WgmmaGemm::kDown>(args, rows, experts, scratch, stream);
}

}  // namespace baton::cuda
