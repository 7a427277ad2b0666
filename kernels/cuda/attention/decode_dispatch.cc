#include "kernels/cuda/attention/decode_dispatch.h"

#include <algorithm>

namespace baton::cuda {

static_assert(Flash3TileRows(64) == HopperTile(64) && Flash3TileRows(128) == HopperTile(128) &&
              Flash3TileRows(256) == HopperTile(256));

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
  limits.device = device;
  limits.clusters = MayRun(KernelFamily::kClusters, device);
  return limits;
}

DecodeKernel ChooseDecodeKernel(const AttentionOptions& options,
                                const DecodeLimits& limits,
                                const AttentionShape& shape,
                                const KvView& kv,
                                const DecodeBatch& rows) {
  const KernelRequest request =
      SingleRowsRequest(HeadsOf(shape), kv, limits, rows, options.deterministic);
  const auto runs = [&](KernelId kernel) { return Runs(kernel, request, limits.device); };
  if (options.decode == DecodeKernel::kCluster) {
    return runs(KernelId::kCluster) ? DecodeKernel::kCluster : DecodeKernel::kFlash2;
  }
  if (options.decode == DecodeKernel::kStreamK) {
    return runs(KernelId::kStreamK) ? DecodeKernel::kStreamK : DecodeKernel::kFlash2;
  }
  const KernelRule* const rule =
      options.decode == DecodeKernel::kFlash2 ? nullptr : Choose(request, limits.device);
  if (rule != nullptr && rule->kernel == KernelId::kCluster) return DecodeKernel::kCluster;
  if (rule != nullptr && rule->kernel == KernelId::kStreamK) return DecodeKernel::kStreamK;
  return DecodeKernel::kFlash2;
}

}  // namespace baton::cuda
