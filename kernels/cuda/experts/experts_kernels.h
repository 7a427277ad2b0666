#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/packed/packed_format.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/sums/expert_results.h"
#include "kernels/expert_args.h"
#include "kernels/tensor.h"

// The kernels of a mixture-of-experts layer, in the order in which they run: score all experts,
// choose experts for each row, group the (row, expert) pairs by expert, compute gate · up and then
// down for each pair, and add up each row's results. Matrices of experts are in bf16, in FP8 with a
// scale for each row, or packed. The wgmma kernels multiply FP8 weights by inputs in FP8, the
// others by inputs in bf16.
namespace baton::cuda {

constexpr int32_t kMaxExperts = 512;
constexpr int32_t kMaxExpertsPerToken = 32;
constexpr int32_t kMaxExpertGroups = 32;  // RouterArgs::groups
constexpr int32_t kCountStride = 32;      // a cache line: atomic operations on one line take turns
constexpr int32_t kWgmmaTileRows = 256;
constexpr int32_t kWgmmaBoxRows = 128;  // weight rows that one TMA load copies
constexpr int32_t kLeastTileRows = 8;
constexpr int32_t kPackedTileRows = 128;  // of the wgmma kernels of packed weights

// RouterArgs as the kernels take them.
struct PreparedRouting {
  RouterScore score = RouterScore::kSoftmax;
  float scale = 1;
  bool weighted_inputs = false;
  float least_sum = 0;
  const float* bias = nullptr;            // [experts], of the logits; null: none
  const float* selection_bias = nullptr;  // [experts]; null: none
  int32_t groups = 1;
  int32_t groups_per_token = 1;
  GroupScore group_score = GroupScore::kBestTwo;

  // Whether the experts with the largest logits are chosen.
  bool chooses_by_logits() const {
    return score == RouterScore::kSoftmax && selection_bias == nullptr && groups == 1;
  }
  bool operator==(const PreparedRouting&) const = default;
};

// The experts of one layer as the kernels take them, with their scratch memory. Equal values launch
// the same kernels with the same arguments.
struct PreparedExperts {
  const __nv_bfloat16* router = nullptr;  // [experts][hidden]
  // Device array, per expert [2·width][hidden], or [width][hidden] of experts without a gate.
  const void* const* gate_up = nullptr;
  const void* const* down = nullptr;  // device array, per expert [hidden][width]
  // Packed matrices have a format.
  PackedFormat gate_up_format = {};
  PackedFormat down_format = {};
  // Device arrays, per expert a scale for each row of the matrix, or the factors of a packed one;
  // null when it has none.
  const float* const* gate_up_scales = nullptr;
  const float* const* down_scales = nullptr;
  // Device arrays, per expert a bias for each row of the matrix; null: none.
  const float* const* gate_up_biases = nullptr;
  const float* const* down_biases = nullptr;
  ExpertGate gate = {};
  PreparedRouting routing = {};
  // Device arrays of one tensor map per expert; null when the wgmma kernels must not be used.
  const CUtensorMap* gate_up_maps = nullptr;
  const CUtensorMap* down_maps = nullptr;
  bool packed_wgmma = false;  // whether packed weights may use wgmma
  int64_t wgmma_rows = 0;     // from this mean number of rows per expert on, wgmma is used
  int32_t sm_count = 0;
  int32_t experts = 0;
  // This rank holds the experts [first, end). The others have null addresses and no tensor maps,
  // and their results are left out.
  int32_t first = 0;
  int32_t end = 0;
  int32_t per_token = 0;
  int32_t hidden = 0;
  int32_t width = 0;
  bool normalize = true;
  std::byte* scratch = nullptr;

  bool operator==(const PreparedExperts&) const = default;
};

// Rows of one expert that one thread block (with wgmma, a cluster of two) computes.
struct ExpertTile {
  int32_t expert;
  int32_t first_slot;
  int32_t rows;
};

// The memory through which the kernels pass their results on. Pair row · per_token + i is the row's
// i-th expert, in ascending order of experts. Slots are the pairs of the held experts, sorted by
// expert.
struct ExpertScratch {
  float* scores = nullptr;           // [rows][experts]
  int32_t* pair_experts = nullptr;   // [pairs]
  float* pair_weights = nullptr;     // [pairs]
  int32_t* pair_ranks = nullptr;     // [pairs], the position among the pairs of its expert
  int32_t* pair_slots = nullptr;     // [pairs]; -1: the expert is not held
  int32_t* slot_rows = nullptr;      // [pairs]
  float* slot_weights = nullptr;     // [pairs]; null: the weights multiply the results
  int32_t* counts = nullptr;         // [experts][kCountStride], pairs of each held expert first
  int32_t* next_items = nullptr;     // [2], for the wgmma GEMMs of gate and up and of down
  ExpertTile* tiles = nullptr;       // [MaxTiles]
  int32_t* tile_count = nullptr;     // [1]
  int32_t* slot_count = nullptr;     // [1]
  __nv_bfloat16* inner = nullptr;    // [pairs][width], by slot
  __nv_bfloat16* results = nullptr;  // [pairs][hidden], by slot
  // The inputs of wgmma GEMMs with FP8 weights; empty when there are none.
  Fp8Rows fp8_x;      // [rows][hidden]
  Fp8Rows fp8_inner;  // [pairs][width], by slot
};

// Whether the experts' GEMMs use wgmma. A row's bits differ between the wgmma kernels and the
// others.
inline bool HasWgmmaRows(const PreparedExperts& experts, int64_t rows) {
  return rows * experts.per_token >= experts.wgmma_rows * experts.experts;
}
inline bool UsesWgmma(const PreparedExperts& experts, int64_t rows) {
  return experts.gate_up_maps != nullptr && HasWgmmaRows(experts, rows);
}
inline bool UsesPackedWgmma(const PreparedExperts& experts, int64_t rows) {
  return experts.packed_wgmma && HasWgmmaRows(experts, rows);
}

// The rows of a tile. Tiles are small when each expert has few rows, so that they waste little of
// the tensor cores' work, and large otherwise, so that a weight is read for many rows at once.
// Without wgmma, a row's bits are the same either way.
inline int32_t TileRows(const PreparedExperts& experts, int64_t rows) {
  if (UsesWgmma(experts, rows)) return kWgmmaTileRows;
  if (UsesPackedWgmma(experts, rows)) return kPackedTileRows;
  const int64_t pairs = rows * experts.per_token;
  if (experts.gate_up_format.is_packed() != experts.down_format.is_packed()) return 16;
  if (experts.gate_up_format.is_packed()) {
    if (pairs <= 2 * int64_t{experts.experts}) return kLeastTileRows;
    return pairs <= 16 * int64_t{experts.experts} ? 16 : 32;
  }
  return pairs <= 32 * int64_t{experts.experts} ? 16 : 64;
}

// An upper bound on the number of tiles, whichever experts the rows choose.
inline int64_t MaxTiles(const PreparedExperts& experts, int64_t rows) {
  const int64_t pairs = rows * experts.per_token;
  const int64_t held = experts.end - experts.first;
  const int64_t used = pairs < held ? pairs : held;
  return used + pairs / TileRows(experts, rows);
}

// scores = x · routerᵀ. Also sets `counts` and `next_items` to zero.
cudaError_t LaunchScores(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream);
// The same for few rows. A score's bits differ from those of LaunchScores.
cudaError_t LaunchFewScores(const Tensor& x,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch,
                            cudaStream_t stream);
// Chooses each row's experts and their weights from the scores, assigns a slot to every pair of a
// held expert, and divides the slots into tiles.
cudaError_t LaunchRouting(int64_t rows,
                          const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          cudaStream_t stream);
// inner = silu(gate x) · up x, or what `experts.gate` says, for each slot, with x the slot's row.
cudaError_t LaunchGateUp(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream);
// results = down · inner, for each slot.
cudaError_t LaunchDown(int64_t rows,
                       const PreparedExperts& experts,
                       const ExpertScratch& scratch,
                       cudaStream_t stream);
// The same two products by packed matrices.
cudaError_t LaunchPackedGateUp(const Tensor& x,
                               const PreparedExperts& experts,
                               const ExpertScratch& scratch,
                               cudaStream_t stream);
cudaError_t LaunchPackedDown(int64_t rows,
                             const PreparedExperts& experts,
                             const ExpertScratch& scratch,
                             cudaStream_t stream);
// The same where UsesPackedWgmma.
cudaError_t LaunchPackedWgmmaGateUp(const Tensor& x,
                                    const PreparedExperts& experts,
                                    const ExpertScratch& scratch,
                                    cudaStream_t stream);
cudaError_t LaunchPackedWgmmaDown(int64_t rows,
                                  const PreparedExperts& experts,
                                  const ExpertScratch& scratch,
                                  cudaStream_t stream);
// The same two products where UsesWgmma. With FP8 weights, the inputs are `fp8_x` and `fp8_inner`.
cudaError_t LaunchWgmmaGateUp(const Tensor& x,
                              const PreparedExperts& experts,
                              const ExpertScratch& scratch,
                              cudaStream_t stream);
cudaError_t LaunchWgmmaDown(int64_t rows,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch,
                            cudaStream_t stream);
// Converts `inner` to FP8. Each slot's scale makes its largest magnitude the largest number of
// E4M3.
cudaError_t LaunchQuantizeInner(int64_t rows,
                                const PreparedExperts& experts,
                                const ExpertScratch& scratch,
                                cudaStream_t stream);
// out = Σ weight · result over each row's pairs that have a slot, in the order of SumOfResults;
// `out` is bf16 or float32.
cudaError_t LaunchCombine(const ExpertResults& results, const Tensor& out, cudaStream_t stream);

}  // namespace baton::cuda
