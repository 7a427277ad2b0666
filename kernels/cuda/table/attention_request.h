#pragma once

#include <cstdint>

#include "kernels/cuda/table/architecture.h"
#include "kernels/cuda/table/kernel_request.h"
#include "kernels/kv_view.h"

// The requests of attention to the kernel table, and the division of single rows on which they
// depend.
namespace baton::cuda {

// What a request of attention depends on in every step. Sizes of KV are those of a rank.
struct AttentionHeads {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // AttentionArgs::window
  bool soft_cap = false;
  bool sinks = false;
  bool chunks = false;  // AttentionArgs::chunk
};

// A device and what attention has counted on it.
struct DecodeLimits {
  DeviceProperties device;
  bool clusters = false;  // KernelFamily::kClusters may run, and clusters of all sizes are resident
  // Resident clusters of 2, 4, 8 and 16 thread blocks, for heads of 64 and of 128.
  int32_t active_clusters[2][4] = {};
};

// The single rows of a step.
struct DecodeBatch {
  int32_t launched = 0;  // with the padding rows of a recorded step
  int32_t count = 0;
  int32_t longest = 0;  // the most positions that a row sees
  int64_t total = 0;    // positions that all rows see
};

// The prompt chunks of a step.
struct ChunkBatch {
  int32_t count = 0;
  int32_t longest = 0;  // positions that the last row of a chunk sees without a window
  int64_t tiles = 0;    // of FlashAttention 3, for one query head
};

inline constexpr int32_t kMaxClusterSize = 16;  // thread blocks of KernelId::kCluster
// For KernelId::kCluster: the number of splits for a row that sees `positions` positions, so that a
// split has about `positions_per_split`: a power of two, at most `most` and 16.
int32_t SplitsOfCluster(int32_t positions, int32_t positions_per_split, int32_t most);
// The same: positions that keep a thread block busy.
inline constexpr int32_t kShortClusterSplit = 128;
// The same: the largest cluster size with which the clusters of all rows and KV heads are resident
// at once; 0 when not even single thread blocks are.
int32_t MaxClusterSplits(const DecodeLimits& limits,
                         const AttentionHeads& heads,
                         const DecodeBatch& rows);

// For KernelId::kStreamK: the number of thread blocks, hence work tiles, for each group of KV
// heads.
int32_t StreamKTileCount(const DecodeLimits& limits, const AttentionHeads& heads, const KvView& kv);

// The most rows of a sequence that count as a few: they use tiles of 16 rows × heads of a group,
// whose contexts are split well.
int32_t MaxFewRows(const AttentionHeads& heads, bool deterministic);

// For KernelId::kFlash3: rows in a tile, and the tiles of `rows` rows of a sequence.
constexpr int32_t Flash3TileRows(int32_t head_dim) {
  return head_dim == 64 ? 192 : 128;
}
constexpr int64_t Flash3Tiles(int64_t rows, int32_t head_dim) {
  return (rows + Flash3TileRows(head_dim) - 1) / Flash3TileRows(head_dim);
}

// The request for sequences with a few rows: what depends on the shape alone.
KernelRequest FewRowsRequest(const AttentionHeads& heads, const KvView& kv, bool deterministic);
KernelRequest SingleRowsRequest(const AttentionHeads& heads,
                                const KvView& kv,
                                const DecodeLimits& limits,
                                const DecodeBatch& rows,
                                bool deterministic);
KernelRequest ChunksRequest(const AttentionHeads& heads,
                            const KvView& kv,
                            const DecodeLimits& limits,
                            const ChunkBatch& chunks,
                            bool deterministic);

}  // namespace baton::cuda
