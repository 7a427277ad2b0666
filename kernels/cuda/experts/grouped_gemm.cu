#include "kernels/cuda/experts/expert_gate.cuh"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/primitives/async_copy.cuh"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/mma_tiles.cuh"
#include "kernels/cuda/primitives/rounding.h"

// Grouped GEMMs: the rows of each expert times its matrix, with bf16 operands and float32
// accumulators. Weights in FP8 are converted to bf16 in registers, which is exact, and their scales
// are applied to the accumulators; the rows stay bf16. Inputs are accumulated in a fixed order, so
// that an output's bits depend on its row and its weights alone. Operands pass through a ring of
// pipeline stages in shared memory.
namespace baton::cuda {
namespace {

constexpr int kVectors = kSwizzledRowVectors;
constexpr int kVectorBytes = kSwizzledRowBytes / kVectors;

enum class ExpertGemm {
  kScores,
  kGateUp,
  kUp,  // of experts without a gate
  kDown
};
// Whether the rows of x are those of slots in `slot_rows`.
constexpr bool Gathers(ExpertGemm gemm) {
  return gemm == ExpertGemm::kGateUp || gemm == ExpertGemm::kUp;
}

struct ExpertGemmArgs {
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  int32_t rows = 0;    // kScores only
  int32_t inputs = 0;  // a multiple of 8
  int32_t outputs = 0;
  const __nv_bfloat16* weight = nullptr;  // kScores only
  const void* const* weights = nullptr;   // but kScores: one matrix per expert
  const float* const* scales = nullptr;   // per expert those of its rows; null for bf16
  const float* const* biases = nullptr;   // the same; null: none
  ExpertGate gate = {};                   // kGateUp
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* slot_rows = nullptr;   // kGateUp, kUp: the row of x for a slot
  const float* slot_weights = nullptr;  // kGateUp, kUp: factors of the products; null: none
  int32_t* counts = nullptr;            // kScores: set to zero, as next_items
  int32_t* next_items = nullptr;
  void* out = nullptr;  // kScores: f32, else bf16; [row or slot][outputs]
};

template <class Number, int kRows, int kWeightRows, int kRowWarps, int kStages, int kThreads = 128>
using Tiling = MmaTiling<__nv_bfloat16, Number, kRows, kWeightRows, kRowWarps, kStages, kThreads>;

using SmallTiling = Tiling<__nv_bfloat16, 16, 32, 1, 8>;
using LargeTiling = Tiling<__nv_bfloat16, 64, 128, 2, 4>;
// For scores; the tiling does not change a score's bits.
using FewScoresTiling = Tiling<__nv_bfloat16, 16, 8, 1, 16, 32>;
using ManyScoresTiling = Tiling<__nv_bfloat16, 64, 64, 2, 4>;
// In the same shared memory.
using SmallFp8Tiling = Tiling<__nv_fp8_e4m3, 16, 32, 1, 6>;
using LargeFp8Tiling = Tiling<__nv_fp8_e4m3, 64, 128, 2, 3>;

__device__ __forceinline__ uint4 LoadSharedVector(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

// Converts four E4M3 numbers to bf16, which represents every one exactly.
__device__ __forceinline__ uint2 Fp8ToBf16(uint32_t from) {
  float values[4];
  UnpackFp8(from, values);
  const __nv_bfloat162 low = __floats2bfloat162_rn(values[0], values[1]);
  const __nv_bfloat162 high = __floats2bfloat162_rn(values[2], values[3]);
  return make_uint2(*reinterpret_cast<const uint32_t*>(&low),
                    *reinterpret_cast<const uint32_t*>(&high));
}

// The address of a vector of a row of x. With one swizzled row for a row of x, vectors are in
// order. With two (lines), vectors 4c and 4c + 1 are vectors 2c and 2c + 1 of the first line,
// vectors 4c + 2 and 4c + 3 are those of the second. Lanes that read one vector for each c in
// neighbouring rows then have no bank conflicts. Neither have lanes that write neighbouring
// vectors, because the halves of the second line are exchanged.
template <class T>
__device__ __forceinline__ uint32_t XVector(uint32_t stage, int row, int vector) {
  if constexpr (T::kRowLines == 1) {
    return SwizzledVector(stage, row, vector);
  } else {
    static_assert(T::kRowLines == 2 && T::kRows % 8 == 0);
    const int line = vector / 2 % 2;
    const int at = vector / 4 * 2 + vector % 2;
    return SwizzledVector(stage, row + line * T::kRows, at ^ line * 4);
  }
}

// The part of every stage that this thread copies: some vectors in each of some rows of x, and one
// vector in each of some weight rows.
template <class T, ExpertGemm kGemm>
struct Source {
  using Number = typename T::Number;
  static constexpr int kXVectorNumbers = kVectorBytes / sizeof(__nv_bfloat16);

  const __nv_bfloat16* x[T::kRows / T::kRowStep];  // the thread's first vector of a row
  bool x_present[T::kRows / T::kRowStep];
  const Number* weight;  // in the thread's first weight row
  int64_t weight_step;   // elements between two weight rows of the thread
  int32_t weight_rows;   // number of the thread's weight rows that exist
  int32_t input;         // first input of the thread's vector of weights in a stage
  int vector;
  int row;

  __device__ Source(const ExpertGemmArgs& args, const ExpertTile& tile, int32_t first_output) {
    row = static_cast<int>(threadIdx.x) / kVectors;
    vector = static_cast<int>(threadIdx.x) % kVectors;
    input = vector * kVectorBytes / static_cast<int>(sizeof(Number));
#pragma unroll
    for (int i = 0; i < T::kRows / T::kRowStep; ++i) {
      const int32_t at = row + i * T::kRowStep;
      x_present[i] = at < tile.rows;
      int64_t from = tile.first_slot + (x_present[i] ? at : 0);
      if (Gathers(kGemm)) from = args.slot_rows[from];
      x[i] = args.x + from * args.x_stride + vector * kXVectorNumbers;
    }
    const auto* matrix = static_cast<const Number*>(
        kGemm == ExpertGemm::kScores ? args.weight : args.weights[tile.expert]);
    // Gate and up rows alternate, so that one thread has both accumulators of an output.
    const bool gate_up = kGemm == ExpertGemm::kGateUp;
    const int32_t first = first_output + (gate_up ? row / 2 : row);
    const int32_t step = gate_up ? T::kRowStep / 2 : T::kRowStep;
    const int32_t part = gate_up && row % 2 == 1 ? args.outputs : 0;
    weight_rows = first < args.outputs ? (args.outputs - first + step - 1) / step : 0;
    weight = matrix + int64_t{part + (weight_rows > 0 ? first : 0)} * args.inputs + input;
    weight_step = int64_t{step} * args.inputs;
  }

  __device__ void CopyWeights(uint32_t stage, int32_t first_input, int32_t inputs) const {
    const bool in_depth = first_input + input < inputs;
#pragma unroll
    for (int i = 0; i < T::kWeightRows / T::kRowStep; ++i) {
      const bool present = in_depth && i < weight_rows;
      const auto* from = present ? weight + i * weight_step + first_input : weight;
      CopyVector(SwizzledVector(stage, T::kXLines + row + i * T::kRowStep, vector), from, present);
    }
  }

  __device__ void CopyX(uint32_t stage, int32_t first_input, int32_t inputs) const {
#pragma unroll
    for (int line = 0; line < T::kRowLines; ++line) {
      const int at = vector + line * kVectors;
      const int32_t further = first_input + line * kVectors * kXVectorNumbers;
      const bool in_depth = first_input + at * kXVectorNumbers < inputs;
#pragma unroll
      for (int i = 0; i < T::kRows / T::kRowStep; ++i) {
        const bool present = in_depth && x_present[i];
        const auto* from = present ? x[i] + further : x[0];
        CopyVector(XVector<T>(stage, row + i * T::kRowStep, at), from, present);
      }
    }
  }
};

// MultiplyStage for weights in FP8 beside x in bf16. mma.sync gives lane 4 g + c the inputs 2c, 2c
// + 1, 2c + 8, 2c + 9 of x's rows g and g + 8 and of weight row g. A sum does not depend on which
// inputs have these places, as long as they are the same for x and the weights. So lane 4 g + c
// takes 16 neighbouring inputs, those from 32 c + 16 half on: one vector of weights, two of each
// row of x. Each MultiplyAdd takes the next four of the 16.
template <class T>
__device__ __forceinline__ void MultiplyFp8Stage(
    uint32_t stage,
    int first_row,
    int first_weight_row,
    float (&accumulators)[T::kRowAtoms][T::kWeightAtoms][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t x[4][T::kRowAtoms][4];
#pragma unroll
    for (int i = 0; i < T::kRowAtoms; ++i) {
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const int row = first_row + 16 * i + 8 * eight + g;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const uint4 v = LoadSharedVector(XVector<T>(stage, row, 4 * c + 2 * half + pair));
          x[2 * pair][i][eight] = v.x;
          x[2 * pair][i][eight + 2] = v.y;
          x[2 * pair + 1][i][eight] = v.z;
          x[2 * pair + 1][i][eight + 2] = v.w;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < T::kWeightAtoms; ++j) {
      const int row = T::kXLines + first_weight_row + 8 * j + g;
      const uint4 v = LoadSharedVector(SwizzledVector(stage, row, 2 * c + half));
      const uint32_t fours[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int four = 0; four < 4; ++four) {
        const uint2 w = Fp8ToBf16(fours[four]);
#pragma unroll
        for (int i = 0; i < T::kRowAtoms; ++i) {
          MultiplyAdd<__nv_bfloat16>(accumulators[i][j], x[four][i], w.x, w.y);
        }
      }
    }
  }
}

// Writes two neighbouring accumulators of a row: two outputs, or gate and up of one output.
// `scales` (for FP8) and `biases` (may be null) are those of the expert's weight rows. `factor`:
// the weight of the row's input.
template <class Number, ExpertGemm kGemm>
__device__ __forceinline__ void StorePair(const ExpertGemmArgs& args,
                                          const float* scales,
                                          const float* biases,
                                          int64_t row,
                                          int32_t output,
                                          float factor,
                                          float first,
                                          float second) {
  if (output >= args.outputs) return;
  const int64_t to = row * args.outputs + output;
  const int32_t next = output + (kGemm == ExpertGemm::kGateUp ? args.outputs : 1);
  if constexpr (kIsFp8<Number>) {
    first *= scales[output];
    second *= scales[next];
  }
  if constexpr (Gathers(kGemm)) {
    first *= factor;
    second *= factor;
  }
  if (kGemm != ExpertGemm::kScores && biases != nullptr) {
    first += biases[output];
    second += biases[next];
  }
  if constexpr (kGemm == ExpertGemm::kScores) {
    static_cast<float*>(args.out)[to] = first;
    if (output + 1 < args.outputs) static_cast<float*>(args.out)[to + 1] = second;
  } else if constexpr (kGemm == ExpertGemm::kGateUp) {
    static_cast<__nv_bfloat16*>(args.out)[to] = __float2bfloat16(Gated(args.gate, first, second));
  } else {
    if constexpr (kGemm == ExpertGemm::kUp) {
      first = SquaredRelu(first);
      second = SquaredRelu(second);
    }
    auto* pair = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(args.out) + to);
    *pair = __floats2bfloat162_rn(first, second);
  }
}

// Writes a warp's accumulators: the tile's rows from `first_row` on, the outputs from
// `first_output` on.
template <class T, ExpertGemm kGemm>
__device__ __forceinline__ void Store(
    const ExpertGemmArgs& args,
    const ExpertTile& tile,
    const float* biases,
    int first_row,
    int32_t first_output,
    const float (&accumulators)[T::kRowAtoms][T::kWeightAtoms][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* scales = kIsFp8<typename T::Number> ? args.scales[tile.expert] : nullptr;
#pragma unroll
  for (int i = 0; i < T::kRowAtoms; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * i + 8 * half + lane / 4;
      if (row >= tile.rows) continue;
      const int64_t to = tile.first_slot + row;
      float factor = 1.0f;
      if (Gathers(kGemm) && args.slot_weights != nullptr) factor = args.slot_weights[to];
      constexpr int kPerPair = kGemm == ExpertGemm::kGateUp ? 1 : 2;
#pragma unroll
      for (int j = 0; j < T::kWeightAtoms; ++j) {
        const int32_t output = first_output + (4 * j + lane % 4) * kPerPair;
        StorePair<typename T::Number, kGemm>(args,
                                             scales,
                                             biases,
                                             to,
                                             output,
                                             factor,
                                             accumulators[i][j][2 * half],
                                             accumulators[i][j][2 * half + 1]);
      }
    }
  }
}

// Prefetches the biases of a tile of `count` outputs into the L2 cache. After the products, the
// wait for memory would take a microsecond.
template <ExpertGemm kGemm>
__device__ __forceinline__ void PrefetchBiases(const float* biases,
                                               int32_t first_output,
                                               int32_t count,
                                               int32_t outputs) {
  constexpr int32_t kNumbers = 8;  // that one prefetch reads
  const auto at = static_cast<int32_t>(threadIdx.x) * kNumbers;
  if (at >= count || first_output + at >= outputs) return;
  const auto prefetch = [](const float* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  };
  prefetch(biases + first_output + at);
  if (kGemm == ExpertGemm::kGateUp) prefetch(biases + outputs + first_output + at);
}

// One thread block for each output tile (blockIdx.x) of each row tile (blockIdx.y).
template <class T, ExpertGemm kGemm>
__global__ void __launch_bounds__(T::kThreads) MultiplyTiles(const ExpertGemmArgs args) {
  extern __shared__ __align__(128) unsigned char memory[];
  // Weights can be loaded before the previous kernel has finished, once the tiles are known. The
  // kernel before the GEMM of gate and up, or of up, finds the tiles. That GEMM lets the GEMM of
  // down start only when the tiles are complete.
  constexpr bool kEarlyWeights = !Gathers(kGemm);
  if constexpr (!kEarlyWeights) WaitForPredecessor();
  ReleaseSuccessor();
  ExpertTile tile;
  if constexpr (kGemm == ExpertGemm::kScores) {
    const auto first = static_cast<int32_t>(blockIdx.y) * T::kRows;
    tile = {0, first, min(T::kRows, args.rows - first)};
  } else {
    if (static_cast<int32_t>(blockIdx.y) >= *args.tile_count) {
      // When no row has chosen an expert of this rank, no block has a tile. The first ones wait all
      // the same, because the next kernel takes this one's end for that of all kernels before.
      if (blockIdx.y == 0) WaitForPredecessor();
      return;
    }
    tile = args.tiles[blockIdx.y];
  }
  constexpr int kOutputs = kGemm == ExpertGemm::kGateUp ? T::kWeightRows / 2 : T::kWeightRows;
  constexpr int kWarpOutputs = kOutputs / T::kWeightWarps;
  const int32_t first_output = static_cast<int32_t>(blockIdx.x) * kOutputs;
  const Source<T, kGemm> source(args, tile, first_output);
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  const int32_t steps = CeilDiv(args.inputs, T::kDepth);
  const auto stage_of = [&](int32_t step) {
    return base + static_cast<uint32_t>(step % T::kStages * T::kStageBytes);
  };
  const auto fetch = [&](int32_t step, bool weights) {
    if (step < steps) {
      if (weights) source.CopyWeights(stage_of(step), step * T::kDepth, args.inputs);
      source.CopyX(stage_of(step), step * T::kDepth, args.inputs);
    }
    asm volatile("cp.async.commit_group;");
  };
  if constexpr (kEarlyWeights) {
#pragma unroll
    for (int32_t step = 0; step < T::kStages - 1; ++step) {
      if (step < steps) source.CopyWeights(stage_of(step), step * T::kDepth, args.inputs);
    }
    WaitForPredecessor();
  }
  if (kGemm == ExpertGemm::kScores && blockIdx.x == 0 && blockIdx.y == 0) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < args.outputs; i += T::kThreads) {
      args.counts[i * kCountStride] = 0;
    }
    if (threadIdx.x < 2) args.next_items[threadIdx.x] = 0;
  }
#pragma unroll
  for (int32_t step = 0; step < T::kStages - 1; ++step) fetch(step, !kEarlyWeights);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_row = warp / T::kWeightWarps * T::kWarpRows;
  const int weight_warp = warp % T::kWeightWarps;
  const float* biases = args.biases == nullptr ? nullptr : args.biases[tile.expert];
  if (biases != nullptr) PrefetchBiases<kGemm>(biases, first_output, kOutputs, args.outputs);
  float accumulators[T::kRowAtoms][T::kWeightAtoms][4] = {};
  for (int32_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(T::kStages - 2));
    __syncthreads();
    fetch(step + T::kStages - 1, true);
    const int first_weight_row = weight_warp * T::kWarpWeightRows;
    if constexpr (kIsFp8<typename T::Number>) {
      MultiplyFp8Stage<T>(stage_of(step), first_row, first_weight_row, accumulators);
    } else {
      MultiplyStage<T>(stage_of(step), first_row, first_weight_row, accumulators);
    }
  }
  Store<T, kGemm>(
      args, tile, biases, first_row, first_output + weight_warp * kWarpOutputs, accumulators);
}

template <class T, ExpertGemm kGemm>
cudaError_t LaunchTiles(const ExpertGemmArgs& args, int64_t row_tiles, cudaStream_t stream) {
  const auto kernel = MultiplyTiles<T, kGemm>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
  if (error != cudaSuccess) return error;
  constexpr int kOutputs = kGemm == ExpertGemm::kGateUp ? T::kWeightRows / 2 : T::kWeightRows;
  const dim3 grid(CeilDiv(args.outputs, kOutputs), static_cast<uint32_t>(row_tiles));
  return LaunchOverlapped(kernel, grid, dim3(T::kThreads), T::kBytes, stream, args);
}

template <class Small, class Large, ExpertGemm kGemm>
cudaError_t LaunchTilesOf(const ExpertGemmArgs& args,
                          int64_t rows,
                          const PreparedExperts& experts,
                          cudaStream_t stream) {
  static_assert(Small::kRows == 16 && Large::kRows == 64, "as TileRows says");
  const int64_t tiles = MaxTiles(experts, rows);
  return TileRows(experts, rows) == Small::kRows ? LaunchTiles<Small, kGemm>(args, tiles, stream)
                                                 : LaunchTiles<Large, kGemm>(args, tiles, stream);
}

template <ExpertGemm kGemm>
cudaError_t LaunchGrouped(ExpertGemmArgs args,
                          int64_t rows,
                          const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          cudaStream_t stream) {
  args.tiles = scratch.tiles;
  args.tile_count = scratch.tile_count;
  return args.scales == nullptr
             ? LaunchTilesOf<SmallTiling, LargeTiling, kGemm>(args, rows, experts, stream)
             : LaunchTilesOf<SmallFp8Tiling, LargeFp8Tiling, kGemm>(args, rows, experts, stream);
}

}  // namespace

cudaError_t LaunchScores(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream) {
  ExpertGemmArgs args;
  args.x = reinterpret_cast<const __nv_bfloat16*>(x.data);
  args.x_stride = x.stride;
  args.rows = static_cast<int32_t>(x.rows);
  args.inputs = experts.hidden;
  args.outputs = experts.experts;
  args.weight = experts.router;
  args.counts = scratch.counts;
  args.next_items = scratch.next_items;
  args.out = scratch.scores;
  // Large tiles read x and the router less often, but only many rows fill the GPU with them.
  constexpr int64_t kFewRows = 64;
  constexpr int64_t kLargeTilesFrom = 2048;
  if (x.rows <= kFewRows) {
    return LaunchTiles<FewScoresTiling, ExpertGemm::kScores>(
        args, CeilDiv(x.rows, FewScoresTiling::kRows), stream);
  }
  return x.rows < kLargeTilesFrom ? LaunchTiles<SmallTiling, ExpertGemm::kScores>(
                                        args, CeilDiv(x.rows, SmallTiling::kRows), stream)
                                  : LaunchTiles<ManyScoresTiling, ExpertGemm::kScores>(
                                        args, CeilDiv(x.rows, ManyScoresTiling::kRows), stream);
}

cudaError_t LaunchGateUp(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream) {
  ExpertGemmArgs args;
  args.x = reinterpret_cast<const __nv_bfloat16*>(x.data);
  args.x_stride = x.stride;
  args.inputs = experts.hidden;
  args.outputs = experts.width;
  args.weights = experts.gate_up;
  args.scales = experts.gate_up_scales;
  args.biases = experts.gate_up_biases;
  args.gate = experts.gate;
  args.slot_rows = scratch.slot_rows;
  args.slot_weights = scratch.slot_weights;
  args.out = scratch.inner;
  if (args.gate.ungated) {
    return LaunchGrouped<ExpertGemm::kUp>(args, x.rows, experts, scratch, stream);
  }
  return LaunchGrouped<ExpertGemm::kGateUp>(args, x.rows, experts, scratch, stream);
}

cudaError_t LaunchDown(int64_t rows,
                       const PreparedExperts& experts,
                       const ExpertScratch& scratch,
                       cudaStream_t stream) {
  ExpertGemmArgs args;
  args.x = scratch.inner;
  args.x_stride = experts.width;
  args.inputs = experts.width;
  args.outputs = experts.hidden;
  args.weights = experts.down;
  args.scales = experts.down_scales;
  args.biases = experts.down_biases;
  args.out = scratch.results;
  return LaunchGrouped<ExpertGemm::kDown>(args, rows, experts, scratch, stream);
}

}  // namespace baton::cuda
