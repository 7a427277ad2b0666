#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/table/stream_k_blocks.h"
#include "kernels/kv_view.h"
#include "kernels/tensor.h"

// The attention kernels and their arguments. All addresses are device addresses. Equal values
// launch the same work (see AttentionPlan).
namespace baton::cuda {

// Everything that determines how attention is split into work tiles: a step makes one plan for each
// shape.
struct AttentionShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // AttentionArgs::window
  int32_t chunk = 0;   // AttentionArgs::chunk
  float scale = 0;
  float cap = 0;            // AttentionArgs::cap
  bool has_sinks = false;   // AttentionLaunch::sinks
  int32_t cache_group = 0;  // whose block tables are read
  // AttentionArgs::only_logit_rows, but false in recorded steps, where all rows are logit rows.
  bool only_logit_rows = false;

  int32_t group() const { return q_heads / kv_heads; }
  bool operator==(const AttentionShape&) const = default;
};

// A row whose context was split (split-KV). Its partial results are combined by LSE.
struct CombinedRow {
  int32_t row = -1;   // -1: padding
  int32_t first = 0;  // its first partial result; the others follow
  int32_t count = 0;
};

// Partial results of split-KV: `values` [partial][q head][dim], normalised, and `lse` [partial][q
// head], the base-2 logarithm of the sum of exponentials that normalised them.
struct PartialResults {
  float* values = nullptr;
  float* lse = nullptr;
  bool operator==(const PartialResults&) const = default;
};

struct CombineWork {
  int32_t rows = 0;          // padded
  bool many_splits = false;  // per row; combined in another order
  const CombinedRow* list = nullptr;
  PartialResults partial;
  bool operator==(const CombineWork&) const = default;
};

// The rows and the blocks of each sequence: arrays of StepLayout and of the plan.
struct SequenceTables {
  int32_t sequences = 0;
  const int32_t* tables = nullptr;        // packed block tables
  const int32_t* table_starts = nullptr;  // [sequences + 1]
  const int32_t* row_starts = nullptr;    // [sequences + 1]
  const int32_t* last_tokens = nullptr;   // [sequences]; tokens in the last block
  bool operator==(const SequenceTables&) const = default;
};

// Work tiles of the paged kernel: (tile of query rows, split of the context) of one sequence, for
// all heads. A query tile packs rows × heads of a group.
struct PagedWork {
  int32_t tile = 0;                       // packed rows: 16, 64 or 128
  int32_t work_tiles = 0;                 // padded
  int32_t row_count = 0;                  // rows of the step
  const int32_t* sequence = nullptr;      // [work_tiles]
  const int32_t* query_tile = nullptr;    // [work_tiles]
  const int32_t* split = nullptr;         // [work_tiles]
  const bool* valid = nullptr;            // [work_tiles]; null: all are valid
  const int32_t* out_starts = nullptr;    // [sequences + 1]; first row or first partial result
  const int32_t* split_tokens = nullptr;  // [1]; positions in a split
  CombineWork combine;                    // no rows: contexts are not split
  SequenceTables sequences;
  bool operator==(const PagedWork&) const = default;
};

// A single row that sees positions [begin, end).
struct DecodeRow {
  int32_t row = -1;  // -1: padding
  int32_t table_start = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t stored = 0;  // AttentionSequence::stored
  int32_t splits = 1;  // splits of its positions
};
// Single rows for the cluster kernel. Each row and KV head gets `splits` thread blocks (the most
// that any row is split into) of `warps` warps.
struct ClusterWork {
  int32_t rows = 0;  // padded
  int32_t splits = 1;
  int32_t warps = 8;  // 8 or 4
  const DecodeRow* list = nullptr;
  const int32_t* tables = nullptr;
  bool operator==(const ClusterWork&) const = default;
};

// Single rows for the stream-K kernel. The units of all rows (kUnitPositions positions of all KV
// heads) are divided into work tiles of equal size, across row borders. A part of a row is what one
// work tile holds of it; in deterministic mode, it is a split that depends on the row's context
// alone, and a work tile consists of whole splits. The partial result of part p of a row has the
// index first_partial + p.
inline constexpr int32_t kUnitPositions = 16;
struct StreamKRow {
  int32_t row = -1;
  int32_t table_start = 0;
  int32_t begin = 0;  // the row sees positions [begin, end)
  int32_t end = 0;
  int32_t stored = 0;      // AttentionSequence::stored
  int32_t first_tile = 0;  // the work tile that holds its first part; not for splits
  int32_t parts = 1;
  int32_t first_partial = 0;
  // Units of a split; the last split may be shorter. 0: parts are not splits.
  int32_t split_units = 0;
};
// A stream-K work tile: `units` consecutive units, starting in one row and continuing in the rows
// listed after it.
struct WorkTile {
  int32_t listed = 0;  // index of the first row
  int32_t unit = 0;    // first unit, counted from the row's first visible unit
  int32_t units = 0;
  StreamKRow row;  // copy of list[listed]
};
// The last work tile of a row combines up to this many partial results; LaunchCombineSplits
// combines more, and all splits of deterministic mode.
inline constexpr int32_t kMaxPartsCombinedInKernel = 12;
struct StreamKWork {
  int32_t count = 0;  // thread blocks for each group of KV heads
  const WorkTile* work_tiles = nullptr;
  const StreamKRow* list = nullptr;  // padded
  const int32_t* tables = nullptr;
  // For rows with several parts. `tickets` [listed][group of KV heads] counts the work tiles that
  // have arrived; all are 0 before and after a launch.
  PartialResults partial;
  uint32_t* tickets = nullptr;
  CombineWork combine;
  bool operator==(const StreamKWork&) const = default;
};

// Copies the K and V of sequences out of their blocks to [part][head][token][dim]. Each sequence is
// zero-padded to a multiple of kGatherAlignment tokens.
inline constexpr int32_t kGatherAlignment = 128;
struct GatheredSequence {
  int32_t table_start = 0;
  int32_t tokens = 0;
  int32_t to = 0;  // first token in the copy
};
struct GatherWork {
  int32_t sequences = 0;   // 0: nothing to copy
  int32_t max_blocks = 0;  // of one sequence, with its zero padding
  int32_t tokens = 0;      // in the copy
  const GatheredSequence* list = nullptr;
  const int32_t* tables = nullptr;
  std::byte* to = nullptr;  // bf16
  bool operator==(const GatherWork&) const = default;
};

// Work tiles of the FlashAttention-3 kernel: tiles of rows of one sequence and one query head, with
// a list for each of `blocks` thread blocks.
struct RaggedWork {
  int32_t work_tiles = 0;
  int32_t blocks = 0;
  int32_t row_count = 0;            // rows of the step, up to the last chunk's end
  const int32_t* starts = nullptr;  // [blocks + 1]
  const int32_t* head = nullptr;    // [work_tiles], as the arrays below
  const int32_t* query_tile = nullptr;
  const int32_t* query_start = nullptr;
  const int32_t* query_rows = nullptr;
  const int32_t* key_start = nullptr;  // row of qkv, or token in the gathered copy
  const int32_t* keys = nullptr;
  const int32_t* sequence = nullptr;
  GatherWork gather;
  bool operator==(const RaggedWork&) const = default;
};

// A work tile of the portable kernel: positions [begin, end) of one row.
struct RowTile {
  int32_t row = -1;  // -1: padding
  int32_t table_start = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t partial = -1;  // index of its partial result; -1: the tile is the whole row
};
// The portable kernel always accumulates in splits of this many positions, so that a row gives the
// same bits in one work tile or in several.
inline constexpr int32_t kPortableSplit = 1024;
struct PortableWork {
  int32_t work_tiles = 0;  // padded
  const RowTile* list = nullptr;
  const int32_t* tables = nullptr;
  CombineWork combine;
  bool operator==(const PortableWork&) const = default;
};

// The arguments of one launch. Attention::Launch fills in `shape`.
struct AttentionLaunch {
  AttentionShape shape{};
  KvView kv;
  int32_t layer = 0;
  const float* kv_scales = nullptr;  // RopeArgs::kv_scales
  const float* sinks = nullptr;      // AttentionArgs::sinks, where the shape has them
  Tensor qkv;
  Tensor out;
  Fp8Rows fp8_out{};  // when it has data, the output goes here in fp8
  cudaStream_t stream = nullptr;
};

// FlashAttention-2 style over the paged arena: head sizes 64, 128 and 256, KV in bf16, with
// windows, sinks and caps. Call Prepare once, before any graph capture; capped_kernels.h has those
// for caps.
cudaError_t PrepareDecodeAttention();
cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionLaunch& call);  // tile 16
cudaError_t PrepareChunkAttention();
cudaError_t LaunchChunkAttention(const PagedWork& work,
                                 const AttentionLaunch& call);  // tile 64, 128
// Query rows packed into a tile of LaunchChunkAttention.
int32_t ChunkTile(int32_t head_dim);
// The same three functions for KV in fp8.
cudaError_t PrepareFp8Attention();
cudaError_t LaunchFp8DecodeAttention(const PagedWork& work, const AttentionLaunch& call);
cudaError_t LaunchFp8ChunkAttention(const PagedWork& work, const AttentionLaunch& call);

cudaError_t PrepareClusterAttention();
// How many clusters of `splits` thread blocks with eight warps are resident at a time. Call after
// Prepare.
cudaError_t CountActiveClusters(int32_t head_dim, int32_t splits, int32_t* clusters);
cudaError_t LaunchClusterAttention(const ClusterWork& work, const AttentionLaunch& call);
// Groups of up to 8 KV heads, one for each thread block. Each group has its own work tiles. A
// head's result has the same bits in a group of any size.
inline int32_t StreamKHeadGroups(const AttentionShape& shape) {
  return shape.kv_heads / StreamKHeadsOfBlock(shape.kv_heads);
}
// Thread blocks that share an SM.
inline int32_t StreamKBlocksPerSm(const AttentionShape& shape, const KvView& kv) {
  return StreamKBlocksOfSm(StreamKHeadsOfBlock(shape.kv_heads), kv.dtype == DType::kFp8);
}
// Whether the stream-K kernel writes AttentionLaunch::fp8_out: what LaunchQuantize would make of
// its result in bf16.
bool StreamKWritesFp8(const AttentionShape& shape);
cudaError_t PrepareStreamKAttention();
cudaError_t LaunchStreamKAttention(const StreamKWork& work, const AttentionLaunch& call);

// FlashAttention-3 style for sm_90, by head size, over contiguous K and V: those of `qkv`, or the
// gathered copy, with sinks and caps. No window.
cudaError_t LaunchHopperAttention64(const RaggedWork& work, const AttentionLaunch& call);
cudaError_t LaunchHopperAttention128(const RaggedWork& work, const AttentionLaunch& call);
cudaError_t LaunchHopperAttention256(const RaggedWork& work, const AttentionLaunch& call);
// Rows in a tile.
inline constexpr int32_t HopperTile(int32_t head_dim) {
  return head_dim == 64 ? 192 : 128;
}
cudaError_t LaunchGather(const GatherWork& work, const AttentionLaunch& call);

// Any head size up to 256 that is a multiple of 8, any KV type, caps and sinks.
cudaError_t LaunchPortableAttention(const PortableWork& work, const AttentionLaunch& call);
cudaError_t LaunchCombineSplits(const CombineWork& work, const AttentionLaunch& call);

}  // namespace baton::cuda
