#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

// The kernels of a mixture-of-experts layer, in the order in which they run: score all experts,
// choose experts for each row, group the (row, expert) pairs by expert, compute gate · up and then
// down for each pair, and add up each row's results.
namespace baton::cuda {

constexpr int32_t kMaxExperts = 512;
constexpr int32_t kMaxExpertsPerToken = 32;

// The experts of one layer as the kernels take them, with their scratch memory. Equal values launch
// the same kernels with the same arguments.
struct PreparedExperts {
  const __nv_bfloat16* router = nullptr;          // [experts][hidden]
  const __nv_bfloat16* const* gate_up = nullptr;  // device array, per expert [2·width][hidden]
  const __nv_bfloat16* const* down = nullptr;     // device array, per expert [hidden][width]
  int32_t experts = 0;
  // This rank's experts, [first, end). The addresses of the others are null, and results of theirs
  // are left out.
  int32_t first = 0;
  int32_t end = 0;
  int32_t per_token = 0;
  int32_t hidden = 0;
  int32_t width = 0;
  bool normalize = true;
  std::byte* scratch = nullptr;

  bool operator==(const PreparedExperts&) const = default;
};

// Rows of one expert that one thread block computes.
struct ExpertTile {
  int32_t expert;
  int32_t first_slot;
  int32_t rows;
};

// The memory through which the kernels pass their results on. Pair row · per_token + i is the row's
// i-th expert, in ascending order of experts. Slots are the pairs sorted by expert.
struct ExpertScratch {
  float* scores = nullptr;           // [rows][experts]
  int32_t* pair_experts = nullptr;   // [pairs]
  float* pair_weights = nullptr;     // [pairs]
  int32_t* pair_slots = nullptr;     // [pairs]; -1: of another rank's expert
  int32_t* slot_rows = nullptr;      // [pairs]
  ExpertTile* tiles = nullptr;       // [MaxTiles]
  int32_t* tile_count = nullptr;     // [1]
  __nv_bfloat16* inner = nullptr;    // [pairs][width], by slot
  __nv_bfloat16* results = nullptr;  // [pairs][hidden], by slot
};

// The rows of a tile. Tiles are small when each expert has few rows, so that they waste little of
// the tensor cores' work, and large otherwise, so that a weight is read for many rows at once. A
// row's bits are the same either way.
inline int32_t TileRows(const PreparedExperts& experts, int64_t rows) {
  return rows * experts.per_token > 32 * int64_t{experts.experts} ? 64 : 16;
}

// An upper bound on the number of tiles, whichever experts the rows choose.
inline int64_t MaxTiles(const PreparedExperts& experts, int64_t rows) {
  const int64_t pairs = rows * experts.per_token;
  const int64_t used = pairs < experts.experts ? pairs : experts.experts;
  return used + pairs / TileRows(experts, rows);
}

// scores = x · routerᵀ.
cudaError_t LaunchScores(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream);
// Chooses each row's experts and their weights from the scores.
cudaError_t LaunchChoice(int64_t rows,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream);
// Assigns a slot to every pair, and divides the slots into tiles.
cudaError_t LaunchGrouping(int64_t rows,
                           const PreparedExperts& experts,
                           const ExpertScratch& scratch,
                           cudaStream_t stream);
// inner = silu(gate x) · up x, for each slot, with x the slot's row.
cudaError_t LaunchGateUp(const Tensor& x,
                         const PreparedExperts& experts,
                         const ExpertScratch& scratch,
                         cudaStream_t stream);
// results = down · inner, for each slot.
cudaError_t LaunchDown(int64_t rows,
                       const PreparedExperts& experts,
                       const ExpertScratch& scratch,
                       cudaStream_t stream);
// out = Σ weight · result over each row's pairs, in the order of experts.
cudaError_t LaunchCombine(const PreparedExperts& experts,
                          const ExpertScratch& scratch,
                          const Tensor& out,
                          cudaStream_t stream);

}  // namespace baton::cuda
