#include "kernels/cuda/latent/latent_splits.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "kernels/cuda/latent/latent_kernels.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// Costs, in tiles of latents (about 1 µs on an H200).
constexpr double kWorkTileCost = 4;    // to start a work tile and to store its result
constexpr double kCombineCost = 4;     // to combine at all
constexpr double kPartialCost = 0.05;  // to store and read the partial results of a split
constexpr int32_t kMinTiles = 4;       // of a split
constexpr int32_t kMaxRounds = 8;

int32_t TilesOf(int32_t positions) {
  return CeilDiv(positions, kHopperLatentTokens);
}

// Rows that see about the same number of positions.
struct Rows {
  int32_t count = 0;
  int32_t tiles = 0;
};

int64_t CountSplits(const std::vector<Rows>& all, int32_t split) {
  int64_t splits = 0;
  for (const Rows& rows : all) splits += int64_t{rows.count} * CeilDiv(rows.tiles, split);
  return splits;
}

// When the last work tile ends, if each slot takes the longest one that is left.
double TimeOf(const std::vector<Rows>& all, int32_t split, int32_t slots) {
  std::vector<int32_t> work_tiles;
  double combine = 0;
  for (const Rows& rows : all) {
    const int32_t splits = CeilDiv(rows.tiles, split);
    const int32_t last = rows.tiles - (splits - 1) * split;
    work_tiles.insert(work_tiles.end(), static_cast<size_t>(rows.count * (splits - 1)), split);
    work_tiles.insert(work_tiles.end(), static_cast<size_t>(rows.count), last);
    if (splits > 1) combine += kPartialCost * rows.count * splits;
  }
  std::ranges::sort(work_tiles, std::greater());
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;
  for (int32_t i = 0; i < slots; ++i) ends.push(0);
  double last = 0;
  for (const int32_t tiles : work_tiles) {
    const double end = ends.top() + tiles + kWorkTileCost;
    ends.pop();
    ends.push(end);
    last = std::max(last, end);
  }
  return combine > 0 ? last + kCombineCost + combine : last;
}

}  // namespace

int32_t ChooseLatentSplit(std::span<const AttentionSequence> sequences, int32_t slots) {
  std::vector<Rows> all;
  int32_t longest = kMinTiles;
  int64_t rows = 0;
  for (const AttentionSequence& sequence : sequences) {
    all.push_back({sequence.rows, TilesOf(sequence.length)});
    longest = std::max(longest, all.back().tiles);
    rows += sequence.rows;
  }
  int32_t best = longest;
  // With more rows, slots that have no work at the end are no great part of all.
  if (rows > int64_t{kMaxRounds} * slots) return best * kHopperLatentTokens;
  double best_time = TimeOf(all, longest, slots);
  for (int32_t rounds = 1; rounds <= kMaxRounds; ++rounds) {
    // The shortest split with which all work tiles run in so many rounds.
    int32_t low = kMinTiles;
    int32_t high = longest;
    while (low < high) {
      const int32_t middle = (low + high) / 2;
      if (CountSplits(all, middle) <= int64_t{rounds} * slots) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const double time = TimeOf(all, low, slots);
    if (time >= best_time) continue;
    best = low;
    best_time = time;
  }
  return best * kHopperLatentTokens;
}

}  // namespace baton::cuda
