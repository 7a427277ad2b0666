#include "kernels/cuda/decode_choice.h"

#include <algorithm>

namespace baton::cuda {
namespace {

// What a thread block of the cluster kernel takes at most where rows differ.
constexpr int32_t kMostClusterPositions = 1024;
// From so many positions on, a cluster of the largest size pays, and equal shares pay more.
constexpr int32_t kLargestClusterContext = 4096;
// Up to this many positions a row on average, clusters also take more rows than run at a time.
constexpr int32_t kShortContext = 1024;
// In how many shares a row may lie however short they are, and from how many positions in a share
// on rows may lie in any number: that another kernel adds up their parts matters little then.
constexpr int32_t kFewShares = 8;
constexpr int32_t kLongShare = 40;

bool SuitsClusters(const DecodeLimits& limits,
                   const AttentionShape& shape,
                   const DecodeRows& rows,
                   int32_t most) {
  const int32_t parts = ClusterParts(rows.longest, kShortClusterPart, most);
  const int64_t positions = rows.longest / parts;
  const int64_t fair = rows.total * shape.kv_heads / limits.processors;
  const bool even = positions <= 512 || 2 * positions <= 5 * fair;
  // Few processors wait for the longest row, nor for each other.
  const bool full = parts == 1 && 4 * positions <= 5 * fair;
  return even && (full || positions <= kMostClusterPositions);
}

bool SuitsShares(const DecodeLimits& limits, const AttentionShape& shape, const DecodeRows& rows) {
  const int64_t share = rows.total / ShareCount(limits, shape);
  return share >= kLongShare || rows.longest <= share * kFewShares;
}

}  // namespace

int32_t VisiblePositions(int32_t length, int32_t window) {
  return window > 0 ? std::min(window, length) : length;
}

DecodeRows DecodeRowsOf(std::span<const AttendingSequence> singles,
                        int32_t window,
                        int32_t launched) {
  DecodeRows rows;
  rows.launched = launched;
  rows.count = static_cast<int32_t>(singles.size());
  for (const AttendingSequence& sequence : singles) {
    const int32_t visible = VisiblePositions(sequence.length, window);
    rows.longest = std::max(rows.longest, visible);
    rows.total += visible;
  }
  return rows;
}

DecodeKernel ChooseDecode(const AttentionOptions& options,
                          const DecodeLimits& limits,
                          const AttentionShape& shape,
                          const KvView& kv,
                          const DecodeRows& rows) {
  if (!TakesSingleRows(shape, kv)) return DecodeKernel::kTiles;
  const bool takes_shares = limits.architecture == 90 && TakesShares(shape, kv);
  if (options.decode != DecodeKernel::kChosen) {
    return options.decode == DecodeKernel::kShares && !takes_shares ? DecodeKernel::kTiles
                                                                    : options.decode;
  }
  if (limits.architecture < 90) return DecodeKernel::kTiles;
  if (options.deterministic) return DecodeKernel::kCluster;
  const bool quantized = kv.dtype == DType::kF8;
  const bool are_short = rows.total <= int64_t{kShortContext} * rows.count;
  // Of E4M3 a processor's share of long contexts comes faster than its few warps make halves of it.
  const bool suits_shares =
      takes_shares && (!quantized || are_short) && SuitsShares(limits, shape, rows);
  const int32_t most = MostClusterParts(limits, shape, rows);
  if (most > 0 && SuitsClusters(limits, shape, rows, most) &&
      !(suits_shares && rows.longest > kLargestClusterContext)) {
    return DecodeKernel::kCluster;
  }
  if (suits_shares) return DecodeKernel::kShares;
  // Tiles turn E4M3 into bf16 too slowly to gain from it, and are large for short rows.
  const bool all_short = most == 0 && are_short && rows.longest <= kMostClusterPositions;
  return quantized || all_short ? DecodeKernel::kCluster : DecodeKernel::kTiles;
}

int32_t MostClusterParts(const DecodeLimits& limits,
                         const AttentionShape& shape,
                         const DecodeRows& rows) {
  const int32_t clusters = rows.launched * shape.kv_heads;
  const int32_t* active = limits.active_clusters[shape.head_dim == 64 ? 0 : 1];
  for (int32_t i = rows.longest > kLargestClusterContext ? 3 : 2; i >= 0; --i) {
    if (active[i] >= clusters) return 2 << i;
  }
  return clusters <= limits.processors ? 1 : 0;
}

int32_t ShareCount(const DecodeLimits& limits, const AttentionShape& shape) {
  return std::max(1, limits.processors / ShareGroups(shape));
}

}  // namespace baton::cuda
