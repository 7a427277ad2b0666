#include "kernels/cuda/latent/latent_splits.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/table/latent_request.h"

namespace baton::cuda {
namespace {

// Costs, in tiles of latents (about 1 µs on an H200).
constexpr double kWorkTileCost = 4;    // to start a work tile and to store its result
constexpr double kCombineCost = 4;     // to combine at all
constexpr double kPartialCost = 0.05;  // to store and read the partial results of a split
constexpr int32_t kMinTiles = 4;       // of a split
constexpr int32_t kMaxRounds = 4;

// As LatentRows, in tiles of latents.
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
    const auto count = static_cast<size_t>(rows.count);
    work_tiles.insert(work_tiles.end(), count * static_cast<size_t>(splits - 1), split);
    work_tiles.insert(work_tiles.end(), count, last);
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

int32_t ChooseLatentSplit(std::span<const LatentRows> rows, int32_t slots) {
  std::vector<Rows> all;
  int32_t longest = kMinTiles;
  int64_t count = 0;
  double total = 0;  // tiles
  for (const LatentRows& some : rows) {
    all.push_back({some.count, CeilDiv(some.positions, kHopperLatentTokens)});
    longest = std::max(longest, all.back().tiles);
    count += some.count;
    total += static_cast<double>(some.count) * all.back().tiles;
  }
  int32_t best = longest;
  // With more rows, slots that have no work at the end are no great part of all.
  if (count > int64_t{kMaxRounds} * slots) return best * kHopperLatentTokens;
  double best_time = TimeOf(all, longest, slots);
  for (int32_t rounds = 1; rounds <= kMaxRounds; ++rounds) {
    if (total / slots + rounds * kWorkTileCost >= best_time) break;  // more rounds take longer
    // The shortest split with which all work tiles run in this number of rounds.
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
