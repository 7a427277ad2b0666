#include "kernels/cuda/table/attention_request.h"

#include <algorithm>

#include "kernels/cuda/table/stream_k_blocks.h"

namespace baton::cuda {
namespace {

// Longer contexts get the largest cluster size.
constexpr int32_t kLargestClusterContext = 4096;

}  // namespace

int32_t SplitsOfCluster(int32_t positions, int32_t positions_per_split, int32_t most) {
  int32_t splits = 1;
  while (2 * splits <= std::min(most, kMaxClusterSize) &&
         splits * positions_per_split < positions) {
    splits *= 2;
  }
  return splits;
}

int32_t MaxClusterSplits(const DecodeLimits& limits,
                         const AttentionHeads& heads,
                         const DecodeBatch& rows) {
  const int32_t clusters = rows.launched * heads.kv_heads;
  const int32_t* active = limits.active_clusters[heads.head_dim == 64 ? 0 : 1];
  for (int32_t i = rows.longest > kLargestClusterContext ? 3 : 2; i >= 0; --i) {
    if (active[i] >= clusters) return 2 << i;
  }
  return clusters <= limits.device.sm_count ? 1 : 0;
}

int32_t StreamKTileCount(const DecodeLimits& limits,
                         const AttentionHeads& heads,
                         const KvView& kv) {
  const int32_t heads_of_block = StreamKHeadsOfBlock(heads.kv_heads);
  const int32_t blocks =
      limits.device.sm_count * StreamKBlocksOfSm(heads_of_block, kv.dtype == DType::kFp8);
  return std::max(1, blocks / (heads.kv_heads / heads_of_block));
}

int32_t MaxFewRows(const AttentionHeads& heads, bool deterministic) {
  constexpr int32_t kFewPackedRows = 64;
  return deterministic ? 1 : std::max(1, kFewPackedRows * heads.kv_heads / heads.q_heads);
}

KernelRequest FewRowsRequest(const AttentionHeads& heads, const KvView& kv, bool deterministic) {
  KernelRequest request;
  request.op = KernelOp::kFewRows;
  request.operands = OperandsOf(kv.dtype);
  if (heads.soft_cap) request.fusions |= SetOf(Fusion::kSoftCap);
  if (heads.sinks) request.fusions |= SetOf(Fusion::kSinks);
  if (heads.chunks) request.fusions |= SetOf(Fusion::kContextChunks);
  request.deterministic = deterministic;
  const auto bytes = static_cast<int64_t>(ShapeOf(kv.dtype).bytes);
  request[Property::kRows] = 1;
  request[Property::kHeadDim] = heads.head_dim;
  request[Property::kQueriesOfHead] = heads.q_heads / heads.kv_heads;
  request[Property::kNumberBytes] = bytes;
  request[Property::kBlockTokens] = kv.block_tokens;
  request[Property::kHeadBytes] = kv.head_stride;
  request[Property::kBlockNumbers] = kv.block_stride / bytes;
  request[Property::kWindow] = heads.window > 0 ? heads.window : INT32_MAX;
  return request;
}

KernelRequest SingleRowsRequest(const AttentionHeads& heads,
                                const KvView& kv,
                                const DecodeLimits& limits,
                                const DecodeBatch& rows,
                                bool deterministic) {
  KernelRequest request = FewRowsRequest(heads, kv, deterministic);
  request.op = KernelOp::kSingleRows;
  const int32_t most = MaxClusterSplits(limits, heads, rows);
  const int32_t splits = SplitsOfCluster(rows.longest, kShortClusterSplit, most);
  request[Property::kRows] = rows.count;
  request[Property::kLongest] = rows.longest;
  request[Property::kPositions] = rows.total;
  request[Property::kClusters] = limits.clusters ? 1 : 0;
  request[Property::kClusterSplits] = most;
  request[Property::kSplits] = splits;
  request[Property::kSplitPositions] = rows.longest / splits;
  request[Property::kFairPositions] = rows.total * heads.kv_heads / limits.device.sm_count;
  request[Property::kWorkTile] = rows.total / StreamKTileCount(limits, heads, kv);
  return request;
}

KernelRequest ChunksRequest(const AttentionHeads& heads,
                            const KvView& kv,
                            const DecodeLimits& limits,
                            const ChunkBatch& chunks,
                            bool deterministic) {
  KernelRequest request = FewRowsRequest(heads, kv, deterministic);
  request.op = KernelOp::kChunks;
  request[Property::kRows] = chunks.count;
  request[Property::kLongest] = chunks.longest;
  request[Property::kTwiceWorkTiles] = 2 * chunks.tiles * heads.q_heads;
  request[Property::kSms] = limits.device.sm_count;
  return request;
}

}  // namespace baton::cuda
