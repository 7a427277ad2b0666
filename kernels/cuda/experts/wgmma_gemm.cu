#include <algorithm>

#include "kernels/cuda/experts/expert_gate.cuh"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/experts/wgmma_loads.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/hopper.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/primitives/wgmma.cuh"

// Grouped GEMMs for Hopper, for steps in which the experts have several rows. Clusters of two
// thread blocks are persistent: each takes one output tile, of 256 rows × 256 weight rows, after
// the other. Each block computes half of the rows. Its producer warp group streams the tile through
// a ring of pipeline stages of 128 bytes of inputs, 64 in bf16 or 128 in FP8: weights by TMA, where
// each block loads half for both (multicast), because the L2 cache's bandwidth would be the bound
// otherwise; rows of x by cp.async for gate and up, because they are gathered, and by TMA for down.
// Each of two consumer warp groups multiplies 64 rows by all weight rows of the tile, and applies
// the scales of FP8 operands and biases to the accumulators. Those of down store the outputs of a
// tile while the tensor cores multiply the next one. Inputs are accumulated in order, so that an
// output's bits depend on its row and its weights alone.
namespace baton::cuda {
namespace wgmma_experts {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

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

// The sum of products of a weight row, with the scales of FP8 operands.
template <class Number>
__device__ __forceinline__ float Scaled(float sum, float row_scale, float weight_scale) {
  if constexpr (kIsFp8<Number>) {
    return sum * (row_scale * weight_scale);
  } else {
    return sum;
  }
}

// Eight biases from `biases` on; 0 where there are none.
template <bool kBiased>
__device__ __forceinline__ void ReadBiases(const float* biases, int32_t at, float (&to)[8]) {
  if (kBiased && biases != nullptr) {
    Read8(biases + at, to);
    return;
  }
#pragma unroll
  for (float& bias : to) bias = 0;
}

// Of every kMixedRows weight rows, a thread has the products of eight neighbouring ones in two
// rows, because of the order in which TMA loads the weight rows. Returns the index of the
// accumulator of the first row, `half` 0, or the second row and weight row `i` of the eight.
__device__ constexpr int AccumulatorOf(int piece, int half, int i) {
  return (piece * 4 + i / 2) * 4 + half * 2 + i % 2;
}

// Writes a warp group's rows of a tile of gate and up.
template <class Number, bool kBiased>
__device__ __forceinline__ void StoreGated(const WgmmaArgs& a,
                                           const ExpertTile& tile,
                                           const TileScales<WgmmaGemm::kGateUp, Number>& scales,
                                           const float* biases,
                                           int32_t first_output,
                                           const float (&accumulators)[kColumns / 2]) {
  constexpr int kUp = kWgmmaBoxRows / 2;  // from the accumulator of gate to that of up
  const int32_t row = AccumulatorRow();
  const int32_t column = first_output + static_cast<int32_t>(threadIdx.x) % 4 * 8;
  __nv_bfloat16* const to = a.out + int64_t{tile.first_slot + row} * a.outputs + column;
#pragma unroll
  for (int piece = 0; piece < kTileOutputs<WgmmaGemm::kGateUp> / kMixedRows; ++piece) {
    const bool exists = column + piece * kMixedRows < a.outputs;
    float gate_scales[8];  // for FP8
    float up_scales[8];
    if constexpr (kIsFp8<Number>) {
      // Outputs that do not exist take scales of others.
      const float* from = scales.weights + (exists ? column + piece * kMixedRows : 0);
      Read8(from, gate_scales);
      Read8(from + a.outputs, up_scales);
    }
    float gate_biases[8];
    float up_biases[8];
    const int32_t first_bias = exists ? column + piece * kMixedRows : 0;
    ReadBiases<kBiased>(biases, first_bias, gate_biases);
    ReadBiases<kBiased>(biases, first_bias + a.outputs, up_biases);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float outputs[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* const sum = accumulators + AccumulatorOf(piece, half, i);
        const float gate = Scaled<Number>(sum[0], scales.rows[half], gate_scales[i]);
        const float up = Scaled<Number>(sum[kUp], scales.rows[half], up_scales[i]);
        if constexpr (kBiased) {
          outputs[i] = Gated(a.gate, gate + gate_biases[i], up + up_biases[i]);
        } else {
          outputs[i] = SiluMul(gate, up);
        }
      }
      const Packed8 packed = Pack(outputs);
      if (exists && row + half * 8 < tile.rows) {
        Store8(to + half * 8 * a.outputs + piece * kMixedRows, packed);
      }
    }
  }
}

// A thread's outputs of a tile of down, which are stored during the products of the next tile. For
// gate and up that gains nothing, because the fence before the products would wait for the stores.
class PendingOutputs {
 public:
  static constexpr int32_t kParts = 4;

  __device__ __forceinline__ explicit PendingOutputs(const WgmmaArgs& a) : stride_(a.outputs) {}

  // Takes the outputs of a tile. Those of the tile before are stored.
  template <class Number, bool kBiased>
  __device__ __forceinline__ void Take(const WgmmaArgs& a,
                                       const ExpertTile& tile,
                                       const TileScales<WgmmaGemm::kDown, Number>& scales,
                                       const float* biases,
                                       int32_t first_output,
                                       const float (&accumulators)[kColumns / 2]) {
    const int32_t row = AccumulatorRow();
    const int32_t column = first_output + static_cast<int32_t>(threadIdx.x) % 4 * 8;
    to_ = a.out + (tile.first_slot + row) * stride_ + column;
    rows_ = tile.rows - row;
    columns_ = a.outputs - column;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      float weight_scales[8];  // for FP8
      if constexpr (kIsFp8<Number>) {
        // Outputs that do not exist take scales of others.
        const bool exists = piece * kMixedRows < columns_;
        Read8(scales.weights + (exists ? column + piece * kMixedRows : 0), weight_scales);
      }
      float added[8];
      ReadBiases<kBiased>(
          biases, piece * kMixedRows < columns_ ? column + piece * kMixedRows : 0, added);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float outputs[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          outputs[i] = Scaled<Number>(
              accumulators[AccumulatorOf(piece, half, i)], scales.rows[half], weight_scales[i]);
          if constexpr (kBiased) outputs[i] += added[i];
        }
        values_[piece][half] = Pack(outputs);
      }
    }
  }

  // Stores part `part`; parts from kParts on are empty.
  __device__ __forceinline__ void Store(int32_t part) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (piece / (kPieces / kParts) != part || piece * kMixedRows >= columns_) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half * 8 >= rows_) continue;
        Store8(to_ + half * 8 * stride_ + piece * kMixedRows, values_[piece][half]);
      }
    }
  }
  // Stores all parts from `part` on. There are no outputs then.
  __device__ __forceinline__ void StoreFrom(int32_t part) {
#pragma unroll
    for (int32_t i = 0; i < kParts; ++i) {
      if (i >= part) Store(i);
    }
    rows_ = 0;
  }

 private:
  static constexpr int32_t kPieces = kTileOutputs<WgmmaGemm::kDown> / kMixedRows;

  Packed8 values_[kPieces][2];
  int64_t stride_;
  __nv_bfloat16* to_ = nullptr;
  int32_t rows_ = 0;     // from the thread's first row on
  int32_t columns_ = 0;  // from the thread's first column on
};

// Runs on each consumer warp group.
template <WgmmaGemm kGemm, class Number, bool kBiased>
__device__ __forceinline__ void ConsumeStages(const WgmmaArgs& a, const Memory& memory) {
  const int32_t first_row = static_cast<int32_t>(threadIdx.x) / kGroupThreads * kGroupRows;
  const uint32_t lane = threadIdx.x % 32;
  const auto release = [&](int32_t slot) {
    if (lane < kCluster) ArriveRemote(MapToRank(memory.Empty(slot), lane));
  };
  RingCursor cursor;
  constexpr bool kDown = kGemm == WgmmaGemm::kDown;
  PendingOutputs outputs(a);  // of down
  for (Work work(a); !work.Done(); work.Advance(memory)) {
    const ExpertTile tile = work.Tile(a);
    if (first_row >= tile.rows) {
      if constexpr (kDown) outputs.StoreFrom(0);
      for (int32_t span = 0; span < a.spans; ++span) {
        WaitBarrier(memory.Full(cursor.slot), cursor.parity);
        release(cursor.slot);
        cursor.Advance(1, kStages);
      }
      continue;
    }
    const TileScales<kGemm, Number> scales(a, tile);
    const float* const biases = kBiased && a.biases != nullptr ? a.biases[tile.expert] : nullptr;
    float accumulators[kColumns / 2];
#pragma unroll
    for (float& sum : accumulators) sum = 0;
    int32_t last = -1;  // the previous stage, which pending WGMMAs may still read
    for (int32_t span = 0; span < a.spans; ++span) {
      WaitBarrier(memory.Full(cursor.slot), cursor.parity);
      if constexpr (!kDown) FenceAsyncProxy();  // cp.async wrote x through the generic proxy
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
      if constexpr (kDown) outputs.Store(span);
      last = cursor.slot;
      cursor.Advance(1, kStages);
    }
    WgmmaWait<0>();
    release(last);
    if constexpr (kDown) {
      outputs.StoreFrom(a.spans);
      outputs.Take<Number, kBiased>(
          a, tile, scales, biases, work.FirstOutput<kGemm>(a), accumulators);
    } else {
      StoreGated<Number, kBiased>(
          a, tile, scales, biases, work.FirstOutput<kGemm>(a), accumulators);
    }
  }
  if constexpr (kDown) outputs.StoreFrom(0);
}

#endif

// With `kBiased`, outputs have biases, or gates another form than silu(gate) · up.
template <WgmmaGemm kGemm, class Number, bool kBiased>
__global__ void __launch_bounds__(kThreads, 1) WgmmaKernel(const __grid_constant__ WgmmaArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char shared[];
  const Memory memory(shared);
  if (threadIdx.x == kProducerThread) {
    for (int32_t i = 0; i < kStages; ++i) {
      InitBarrier(memory.Full(i), kGemm == WgmmaGemm::kGateUp ? kGroupThreads + 1 : 1);
      InitBarrier(memory.Empty(i), kCluster * kConsumers * kGroupThreads / 32);
    }
    for (int32_t i = 0; i < kItems; ++i) {
      InitBarrier(memory.ItemFull(i), 1);
      InitBarrier(memory.ItemEmpty(i),
                  kCluster * (kConsumers * kGroupThreads + kLoadThreads<kGemm>) / 32);
    }
    FenceBarrierInit();
  }
  ClusterArrive();
  ClusterWait();
  int32_t loaded = 0;
  // The grouping is complete before the GEMM of gate and up lets that of down start.
  if (kGemm == WgmmaGemm::kDown && threadIdx.x == kProducerThread) {
    loaded = LoadFirstWeights(a, memory);
  }
  WaitForPredecessor();
  ReleaseSuccessor();
  if (threadIdx.x >= kProducerThread) {
    DecreaseRegisters<40>();
    if constexpr (kGemm == WgmmaGemm::kGateUp) {
      GatherStages(a, memory);
    } else if (threadIdx.x < kProducerThread + kLoadThreads<kGemm>) {
      LoadStages(a, memory, loaded);
    }
  } else {
    IncreaseRegisters<232>();
    ConsumeStages<kGemm, Number, kBiased>(a, memory);
  }
  // The other block may still arrive at the barriers in this block's shared memory.
  ClusterArrive();
  ClusterWait();
#endif
}

template <WgmmaGemm kGemm, bool kBiased>
auto KernelOf(bool fp8) {
  return fp8 ? WgmmaKernel<kGemm, __nv_fp8_e4m3, kBiased>
             : WgmmaKernel<kGemm, __nv_bfloat16, kBiased>;
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
  const bool fp8 = args.weight_scales != nullptr;
  const auto kernel = args.biases != nullptr || args.gate.limit > 0 ? KernelOf<kGemm, true>(fp8)
                                                                    : KernelOf<kGemm, false>(fp8);
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
}  // namespace wgmma_experts

cudaError_t LaunchWgmmaGateUp(const Tensor& x,
                              const PreparedExperts& experts,
                              const ExpertScratch& scratch,
                              cudaStream_t stream) {
  const bool fp8 = experts.gate_up_scales != nullptr;
  const int64_t row_bytes = int64_t{experts.hidden} * (fp8 ? 1 : 2);
  const int64_t stride_bytes = fp8 ? row_bytes : 2 * x.stride;
  wgmma_experts::WgmmaArgs args;
  args.x = reinterpret_cast<const uint4*>(fp8 ? scratch.fp8_x.data : x.data);
  args.x_stride = static_cast<int32_t>(stride_bytes / int64_t{sizeof(uint4)});
  args.x_scales = scratch.fp8_x.scales;
  args.spans = static_cast<int32_t>(row_bytes / kSpanBytes);
  args.next_item = scratch.next_items;
  args.outputs = experts.width;
  args.second_box = experts.width;
  args.weights = experts.gate_up_maps;
  args.weight_scales = experts.gate_up_scales;
  args.biases = experts.gate_up_biases;
  args.gate = experts.gate;
  args.slot_rows = scratch.slot_rows;
  args.out = scratch.inner;
  return wgmma_experts::LaunchWgmma<wgmma_experts::WgmmaGemm::kGateUp>(
      args, x.rows, experts, scratch, stream);
}

cudaError_t LaunchWgmmaDown(int64_t rows,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch,
                            cudaStream_t stream) {
  const bool fp8 = experts.down_scales != nullptr;
  const int64_t row_bytes = int64_t{experts.width} * (fp8 ? 1 : 2);
  const void* const x = fp8 ? static_cast<const void*>(scratch.fp8_inner.data) : scratch.inner;
  wgmma_experts::WgmmaArgs args;
  const MatrixView slots{x, static_cast<int32_t>(rows * experts.per_token), row_bytes, row_bytes};
  const cudaError_t error = MakeTensorMap(slots, {.rows = wgmma_experts::kGroupRows}, &args.slots);
  if (error != cudaSuccess) return error;
  args.x_scales = scratch.fp8_inner.scales;
  args.spans = static_cast<int32_t>(row_bytes / kSpanBytes);
  args.next_item = scratch.next_items + 1;
  args.outputs = experts.hidden;
  args.second_box = kWgmmaBoxRows;
  args.weights = experts.down_maps;
  args.weight_scales = experts.down_scales;
  args.biases = experts.down_biases;
  args.out = scratch.results;
  return wgmma_experts::LaunchWgmma<wgmma_experts::WgmmaGemm::kDown>(
      args, rows, experts, scratch, stream);
}

}  // namespace baton::cuda
