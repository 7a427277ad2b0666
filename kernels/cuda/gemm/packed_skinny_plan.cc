#include "kernels/cuda/gemm/packed_skinny_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMinStages = 2;
constexpr int32_t kWantedStages = 4;

// With more rows of x, small blocks have too little memory.
constexpr int32_t kSmallRows = 16;
constexpr int32_t kSmallShared = 112 << 10;
constexpr int32_t kSmallWarpGroups = 2;

// A way to divide the tiles and k. Two small blocks fit on an SM.
struct Division {
  int32_t cluster = 1;
  int32_t matrices = 1;
  bool small = false;
  int32_t parts = 1;
  int32_t tiles = 1;
};

int32_t AtOnce(const Division& way, const SkinnyLimits& limits) {
  const int32_t clusters = way.cluster == 1   ? limits.blocks
                           : way.cluster == 2 ? limits.clusters_of_2
                                              : limits.clusters_of_4;
  return way.small ? 2 * clusters : clusters;
}

// The time on an H200 in microseconds, estimated with measured rates: the longer of the times to
// read the weights from memory, and to unpack and multiply on an SM; and a part of the time to read
// weights and x (once for each tile) through the L2 cache, which does not quite hide behind these.
// Thread blocks that divide k also exchange partial sums.
float Cost(const GemmProblem& problem,
           int32_t row_group,
           const Division& way,
           const PackedLimits& limits) {
  constexpr float kMemory = 4.4e6f;  // bytes per microsecond
  constexpr float kCache = 8.2e6f;
  constexpr float kNotHidden = 0.2f;
  constexpr float kClock = 1700;  // cycles per microsecond
  constexpr float kExchange = 1.0f / 840;
  constexpr float kNextStarts = 1.5f;  // earlier, beside small blocks
  constexpr float kFewWarps = 1.3f;    // the slowdown of an SM with one small block
  const PackedFormat& format = problem.packed;
  const auto weights = static_cast<float>(format.Bytes(problem.n, problem.k));
  const float inputs = 2.0f * static_cast<float>(problem.k) * static_cast<float>(row_group) *
                       static_cast<float>(way.tiles);
  const auto rows = static_cast<float>(row_group);
  // Of a tile of 64 × 64 weights.
  float cycles = (format.has_bytes() ? 160.0f : 120.0f) + 2.4f * rows;
  if (way.small && way.tiles * way.cluster <= limits.blocks) cycles *= kFewWarps;
  const int32_t clusters = AtOnce(way, limits) / (way.small ? 2 : 1);
  const auto steps =
      static_cast<float>(CeilDiv(way.tiles, clusters) * way.matrices * format.tiles_of_chunk() *
                         CeilDiv(static_cast<int32_t>(format.chunks(problem.k)), way.cluster));
  return std::max(weights / kMemory, steps * cycles / kClock) +
         kNotHidden * (weights + inputs) / kCache +
         static_cast<float>(way.cluster - 1) * rows * rows * kExchange -
         (way.small ? kNextStarts : 0);
}

int32_t Halves(const GemmProblem& problem) {
  return problem.silu_mul ? 2 : 1;
}

int32_t StageBytes(const GemmProblem& problem,
                   int32_t row_group,
                   int32_t matrices,
                   int32_t chunks) {
  const PackedFormat& format = problem.packed;
  return RoundUp(
      chunks * (format.tiles_of_chunk() * row_group * kSpanBytes + matrices * format.chunk_bytes()),
      1024);
}

// Partial sums are [part][half][row of x][output], with padding behind each row.
int32_t PartialsBytes(const GemmProblem& problem, int32_t row_group, const Division& way) {
  const int32_t halves = Halves(problem);
  const int32_t outputs = way.matrices / halves * kTileOutputs;
  return way.parts * halves * row_group * (outputs + 4) * 4;
}

// Less for few rows also where the blocks are not small.
int32_t SharedBytes(int32_t row_group, const PackedLimits& limits) {
  return row_group <= kSmallRows ? std::min(limits.shared_bytes, kSmallShared)
                                 : limits.shared_bytes;
}

// Chooses the warp groups of a block that consume a matrix in turn: as many as fit. False: not even
// one fits.
bool ChooseParts(const GemmProblem& problem,
                 int32_t row_group,
                 bool apart,
                 const PackedLimits& limits,
                 Division& way) {
  const int32_t most = limits.parts == 0 ? kPackedMaxWarpGroups : limits.parts;
  const int32_t warp_groups = way.small ? kSmallWarpGroups : kPackedMaxWarpGroups;
  const int32_t shared = SharedBytes(row_group, limits);
  const auto bytes = [&](int32_t parts) {
    way.parts = parts;
    return kSkinnyBarrierBytes +
           kMinStages * parts * StageBytes(problem, row_group, way.matrices, 1) +
           (apart ? PartialsBytes(problem, row_group, way) : 0);
  };
  int32_t parts = 1;
  while (2 * parts <= most && 2 * parts * way.matrices <= warp_groups &&
         bytes(2 * parts) <= shared) {
    parts *= 2;
  }
  return way.matrices <= warp_groups && bytes(parts) <= shared;
}

Division Divide(const GemmProblem& problem, int32_t row_group, const PackedLimits& limits) {
  const int32_t halves = Halves(problem);
  const auto chunks = static_cast<int32_t>(problem.packed.chunks(problem.k));
  const int32_t single_tiles = CeilDiv(problem.n / halves, kTileOutputs);
  Division best = {.matrices = halves, .tiles = single_tiles};
  float least = std::numeric_limits<float>::max();
  const auto consider = [&](Division way) {
    way.tiles = CeilDiv(single_tiles, way.matrices / halves);
    const int32_t at_once = AtOnce(way, limits);
    const bool several = way.tiles > at_once;
    // Blocks exchange partial sums in the memory of the ring, so a block can have only one tile.
    if (at_once == 0 || way.cluster > chunks || (way.cluster > 1 && several)) return;
    if (!ChooseParts(problem, row_group, several, limits, way)) return;
    const bool wanted = (limits.cluster == 0 || limits.cluster == way.cluster) &&
                        (limits.tile_matrices == 0 || limits.tile_matrices == way.matrices);
    const float cost = Cost(problem, row_group, way, limits) + (wanted ? 0.0f : 1e6f);
    if (cost >= least) return;
    least = cost;
    best = way;
  };
  for (const int32_t cluster : {1, 2, kSkinnyMaxCluster}) {
    for (int32_t matrices = halves; matrices <= kPackedMaxWarpGroups; matrices += halves) {
      consider({.cluster = cluster, .matrices = matrices});
      if (row_group > kSmallRows) continue;
      consider({.cluster = cluster, .matrices = matrices, .small = true});
    }
  }
  return best;
}

}  // namespace

SkinnyPlan PlanPackedGemm(const GemmProblem& problem, const PackedLimits& limits) {
  const PackedFormat& format = problem.packed;
  SkinnyPlan plan;
  while (plan.row_group < problem.rows) plan.row_group *= 2;
  const Division way = Divide(problem, plan.row_group, limits);
  plan.cluster = way.cluster;
  plan.tiles = way.tiles;
  plan.clusters = std::min(AtOnce(way, limits), way.tiles);
  plan.matrices = way.matrices;
  plan.warp_groups = way.matrices * way.parts;
  plan.tile_outputs = way.matrices / Halves(problem) * kTileOutputs;

  const int32_t waves = CeilDiv(plan.tiles, plan.clusters);
  const bool apart = waves > 1;
  const int32_t partials_bytes = PartialsBytes(problem, plan.row_group, way);
  const int32_t fixed = kSkinnyBarrierBytes + (apart ? partials_bytes : 0);
  const int32_t room = SharedBytes(plan.row_group, limits) - fixed;
  const int32_t part_chunks = CeilDiv(static_cast<int32_t>(format.chunks(problem.k)), way.cluster);
  const int32_t enough = std::max(kWantedStages, kMinStages * way.parts);
  int32_t chunks = 1;
  while (chunks * way.matrices * format.chunk_bytes() < limits.stage_bytes * 3 / 4 &&
         2 * chunks * way.parts <= part_chunks &&
         StageBytes(problem, plan.row_group, way.matrices, 2 * chunks) <= room / enough) {
    chunks *= 2;
  }
  plan.spans = chunks * format.tiles_of_chunk();
  plan.stages_per_tile = CeilDiv(part_chunks, chunks);
  plan.weight_bytes = chunks * way.matrices * format.chunk_bytes();
  plan.stage_bytes = StageBytes(problem, plan.row_group, way.matrices, chunks);
  plan.stages = std::min({room / plan.stage_bytes, kSkinnyMaxStages, plan.stages_per_tile * waves});
  // A stage always belongs to the same part: waiting by parity works only for a warp group that
  // waits for every phase of a barrier.
  plan.stages = std::max(plan.stages / way.parts, kMinStages) * way.parts;
  const int32_t ring = plan.stages * plan.stage_bytes;
  plan.partials_offset = apart ? ring : 0;
  plan.shared_bytes = fixed + (apart ? ring : std::max(ring, partials_bytes));
  return plan;
}

}  // namespace baton::cuda
