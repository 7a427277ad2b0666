#include "kernels/cuda/attention/decode_dispatch.h"

#include <algorithm>

namespace baton::cuda {
namespace {

// The most positions for a thread block of the cluster kernel when lengths differ.
constexpr int32_t kMaxClusterPositions = 1024;
// Longer contexts get the largest cluster size, and stream-K is faster still.
constexpr int32_t kLargestClusterContext = 4096;
// Up to this mean number of positions, the cluster kernel also serves more rows than are resident
// at once.
constexpr int32_t kShortContext = 1024;
// Stream-K serves a row in at most kFewTiles work tiles of any size, or in any number of work tiles
// of at least kLongTile positions, for which the combine kernel costs little.
constexpr int32_t kFewTiles = 8;
constexpr int32_t kLongTile = 40;

bool SuitsCluster(const DecodeLimits& limits,
                  const AttentionShape& shape,
                  const DecodeBatch& rows,
                  int32_t most) {
  const int32_t splits = ClusterSplits(rows.longest, kShortClusterSplit, most);
  const int64_t positions = rows.longest / splits;
  const int64_t fair = rows.total * shape.kv_heads / limits.sm_count;
  const bool even = positions <= 512 || 2 * positions <= 5 * fair;
  // When all SMs are busy, no SM waits for the longest row.
  const bool full = splits == 1 && 4 * positions <= 5 * fair;
  return even && (full || positions <= kMaxClusterPositions);
}

bool SuitsStreamK(const DecodeLimits& limits,
                  const AttentionShape& shape,
                  const KvView& kv,
                  const DecodeBatch& rows) {
  const int64_t work_tile = rows.total / StreamKTileCount(limits, shape, kv);
  return work_tile >= kLongTile || rows.longest <= work_tile * kFewTiles;
}

}  // namespace

int32_t VisiblePositions(int32_t length, int32_t window) {
  return window > 0 ? std::min(window, length) : length;
}

DecodeBatch DecodeBatchOf(std::span<const AttentionSequence> singles,
                          int32_t window,
                          int32_t launched) {
  DecodeBatch rows;
  rows.launched = launched;
  rows.count = static_cast<int32_t>(singles.size());
  for (const AttentionSequence& sequence : singles) {
    const int32_t visible = VisiblePositions(sequence.length, window);
    rows.longest = std::max(rows.longest, visible);
    rows.total += visible;
  }
  return rows;
}

DecodeLimits LimitsOf(const DeviceProperties& device) {
  DecodeLimits limits;
  limits.sm_count = device.sm_count;
  limits.hopper = MayRun(KernelFamily::kHopper, device);
  limits.clusters = MayRun(KernelFamily::kClusters, device);
  return limits;
}

DecodeKernel ChooseDecodeKernel(const AttentionOptions& options,
                                const DecodeLimits& limits,
                                const AttentionShape& shape,
                                const KvView& kv,
                                const DecodeBatch& rows) {
  if (!limits.clusters || !SupportsSingleRows(shape, kv)) return DecodeKernel::kFlash2;
  const bool supports_stream_k = limits.hopper && SupportsStreamK(shape, kv);
  if (options.decode != DecodeKernel::kAuto) {
    return options.decode == DecodeKernel::kStreamK && !supports_stream_k ? DecodeKernel::kFlash2
                                                                          : options.decode;
  }
  if (options.deterministic) {
    return supports_stream_k ? DecodeKernel::kStreamK : DecodeKernel::kCluster;
  }
  const bool fp8 = kv.dtype == DType::kFp8;
  const bool are_short = rows.total <= int64_t{kShortContext} * rows.count;
  // With fp8 and long contexts, loads are faster than the few warps of stream-K convert fp8 to
  // half.
  const bool suits_stream_k =
      supports_stream_k && (!fp8 || are_short) && SuitsStreamK(limits, shape, kv, rows);
  const int32_t most = MaxClusterSplits(limits, shape, rows);
  if (most > 0 && SuitsCluster(limits, shape, rows, most) &&
      !(suits_stream_k && rows.longest > kLargestClusterContext)) {
    return DecodeKernel::kCluster;
  }
  if (suits_stream_k) return DecodeKernel::kStreamK;
  // FlashAttention 2 converts fp8 to bf16 too slowly to gain from it, and its tiles are too large
  // for short rows.
  const bool all_short = most == 0 && are_short && rows.longest <= kMaxClusterPositions;
  return fp8 || all_short ? DecodeKernel::kCluster : DecodeKernel::kFlash2;
}

int32_t MaxClusterSplits(const DecodeLimits& limits,
                         const AttentionShape& shape,
                         const DecodeBatch& rows) {
  const int32_t clusters = rows.launched * shape.kv_heads;
  const int32_t* active = limits.active_clusters[shape.head_dim == 64 ? 0 : 1];
  for (int32_t i = rows.longest > kLargestClusterContext ? 3 : 2; i >= 0; --i) {
    if (active[i] >= clusters) return 2 << i;
  }
  return clusters <= limits.sm_count ? 1 : 0;
}

int32_t StreamKTileCount(const DecodeLimits& limits,
                         const AttentionShape& shape,
                         const KvView& kv) {
  const int32_t blocks = limits.sm_count * StreamKBlocksPerSm(shape, kv);
  return std::max(1, blocks / StreamKHeadGroups(shape));
}

}  // namespace baton::cuda
