#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/quantize.h"
#include "kernels/kv_view.h"
#include "kernels/tensor.h"

// The kernels of attention and what they are told. Device addresses throughout; equal values launch
// the same work (see AttentionPlan).
namespace baton::cuda {

// What decides how attention is cut into pieces of work: a step makes one plan for each shape.
struct AttentionShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // AttentionArgs::window
  float scale = 0;

  int32_t group() const { return q_heads / kv_heads; }
  bool operator==(const AttentionShape&) const = default;
};

// Rows whose context was split: the results of its parts are added up.
struct MergedRow {
  int32_t row = -1;   // -1: padding
  int32_t first = 0;  // of its partial results, which lie together
  int32_t count = 0;
};

// Partial results: `values` [partial][q head][dim], normalised, and `weights` [partial][q head],
// the base-2 logarithm of the sum of exponentials they were divided by.
struct PartialResults {
  float* values = nullptr;
  float* weights = nullptr;
  bool operator==(const PartialResults&) const = default;
};

struct MergeWork {
  int32_t rows = 0;         // padded
  bool many_parts = false;  // of a row, which are added up in another order
  const MergedRow* list = nullptr;
  PartialResults partial;
  bool operator==(const MergeWork&) const = default;
};

// Where the rows of each sequence and its blocks are: arrays of StepLayout and of the plan.
struct SequenceTables {
  int32_t sequences = 0;
  const int32_t* tables = nullptr;        // packed block tables
  const int32_t* table_starts = nullptr;  // [sequences + 1]
  const int32_t* row_starts = nullptr;    // [sequences + 1]
  const int32_t* last_tokens = nullptr;   // [sequences]; tokens in the last block
  bool operator==(const SequenceTables&) const = default;
};

// Pieces for the paged kernel: (tile of query rows, part of the context) of one sequence, for all
// heads. Rows times heads of a group are packed into tiles.
struct PagedWork {
  int32_t tile = 0;                      // packed rows: 16, 64 or 128
  int32_t pieces = 0;                    // padded
  int32_t row_count = 0;                 // of the step
  const int32_t* sequence = nullptr;     // [pieces]
  const int32_t* query_tile = nullptr;   // [pieces]
  const int32_t* part = nullptr;         // [pieces]
  const bool* valid = nullptr;           // [pieces], or null: all are
  const int32_t* out_starts = nullptr;   // [sequences + 1]; first row, or first partial result
  const int32_t* part_tokens = nullptr;  // [1]; positions in a part
  MergeWork merge;                       // no rows: the context is not split
  SequenceTables sequences;
  bool operator==(const PagedWork&) const = default;
};

// A single row that sees positions [begin, end).
struct DecodeRow {
  int32_t row = -1;  // -1: padding
  int32_t table_start = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t parts = 1;  // into which its positions are cut
};
// Single rows for the cluster kernel: `parts` thread blocks, the most that a row is cut into, of
// `warps` each for every row and KV head.
struct ClusterWork {
  int32_t rows = 0;  // padded
  int32_t parts = 1;
  int32_t warps = 8;  // or 4
  const DecodeRow* list = nullptr;
  const int32_t* tables = nullptr;
  bool operator==(const ClusterWork&) const = default;
};

// Single rows, whose units (kUnitPositions positions of all KV heads) are cut into equal shares,
// whatever rows they belong to.
inline constexpr int32_t kUnitPositions = 16;
struct SharedRow {
  int32_t row = -1;
  int32_t table_start = 0;
  int32_t begin = 0;  // it sees positions [begin, end)
  int32_t end = 0;
  int32_t first_share = 0;
  int32_t shares = 1;  // that it lies in
};
// A share: so many units from one of a row on.
struct Share {
  int32_t listed = 0;  // the row
  int32_t unit = 0;    // of those that it sees
  int32_t units = 0;
  SharedRow row;  // as listed
};
// A row in up to so many shares is added up by the last of them, others by LaunchMerge.
inline constexpr int32_t kMostAddedShares = 12;
struct ShareWork {
  int32_t count = 0;  // a thread block each for every group of KV heads
  const Share* shares = nullptr;
  const SharedRow* list = nullptr;  // padded
  const int32_t* tables = nullptr;
  // Of rows that lie in several shares: what a share has of the row `listed` is partial result
  // share + listed. And the shares that have come, [listed][group of KV heads], all 0 before and
  // after.
  PartialResults partial;
  uint32_t* tickets = nullptr;
  MergeWork merge;
  bool operator==(const ShareWork&) const = default;
};

// Copies the K and V of sequences out of their blocks: [part][head][token][dim], each sequence
// followed by zeros up to a multiple of kGatherAlignment tokens.
inline constexpr int32_t kGatherAlignment = 128;
struct GatheredSequence {
  int32_t table_start = 0;
  int32_t tokens = 0;
  int32_t to = 0;  // first token of the copy
};
struct GatherWork {
  int32_t sequences = 0;   // 0: nothing to copy
  int32_t max_blocks = 0;  // of one sequence, with its zeros
  int32_t tokens = 0;      // of the copy
  const GatheredSequence* list = nullptr;
  const int32_t* tables = nullptr;
  std::byte* to = nullptr;  // bf16
  bool operator==(const GatherWork&) const = default;
};

// Pieces for the Hopper kernel: tiles of rows of one sequence and one query head, a list for each
// of `blocks` thread blocks.
struct RaggedWork {
  int32_t pieces = 0;
  int32_t blocks = 0;
  int32_t row_count = 0;            // of the step, those up to the last chunk's end
  const int32_t* starts = nullptr;  // [blocks + 1]
  const int32_t* head = nullptr;    // [pieces] …
  const int32_t* query_tile = nullptr;
  const int32_t* query_start = nullptr;
  const int32_t* query_rows = nullptr;
  const int32_t* key_start = nullptr;  // row of qkv, or token of the gathered copy
  const int32_t* keys = nullptr;
  const int32_t* sequence = nullptr;
  GatherWork gather;
  bool operator==(const RaggedWork&) const = default;
};

// Pieces for the portable kernel: positions [begin, end) of one row.
struct RowPiece {
  int32_t row = -1;  // -1: padding
  int32_t table_start = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t partial = -1;  // where its result goes; -1: it is the whole row
};
// The portable kernel adds up at multiples of this many positions, in one piece or in several: the
// bits are the same.
inline constexpr int32_t kPortablePart = 1024;
struct PortableWork {
  int32_t pieces = 0;  // padded
  const RowPiece* list = nullptr;
  const int32_t* tables = nullptr;
  MergeWork merge;
  bool operator==(const PortableWork&) const = default;
};

// One call of attention, as Attention::Launch, which knows shape and overlapped.
struct AttentionCall {
  AttentionShape shape{};
  KvView kv;
  int32_t layer = 0;
  const float* kv_scales = nullptr;  // RopeArgs::kv_scales
  Tensor qkv;
  Tensor out;
  QuantizedRows quantized{};  // with data: `out` in E4M3
  bool overlapped = false;    // programmatic dependent launch
  cudaStream_t stream = nullptr;
};

// FlashAttention-2 style over the paged arena; head sizes 64, 128 and 256, KV in bf16. Prepare is
// called once, before any capture.
cudaError_t PrepareDecodeAttention();
cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionCall& call);  // tile 16
cudaError_t PrepareChunkAttention();
cudaError_t LaunchChunkAttention(const PagedWork& work, const AttentionCall& call);  // tile 64, 128
// Query rows packed into a tile of LaunchChunkAttention.
int32_t ChunkTile(int32_t head_dim);
// The same three with KV in E4M3.
cudaError_t PrepareQuantizedAttention();
cudaError_t LaunchQuantizedDecodeAttention(const PagedWork& work, const AttentionCall& call);
cudaError_t LaunchQuantizedChunkAttention(const PagedWork& work, const AttentionCall& call);

// Our own kernels for single rows take head sizes 64 and 128, groups of up to 8, KV in bf16 or
// E4M3.
bool TakesSingleRows(const AttentionShape& shape, const KvView& kv);
// Into how many parts to cut a row that sees `positions`, so that a part has about
// `positions_per_part`: a power of two up to `most` and 16.
int32_t ClusterParts(int32_t positions, int32_t positions_per_part, int32_t most);
cudaError_t PrepareClusterAttention();
// How many clusters of `parts` thread blocks of eight warps run at a time (after Prepare).
cudaError_t CountActiveClusters(int32_t head_dim, int32_t parts, int32_t* clusters);
cudaError_t LaunchClusterAttention(const ClusterWork& work, const AttentionCall& call);
// Of these, the kernel of equal shares takes heads of 128, KV heads by four, whose blocks hold a
// unit, on sm_90 alone.
bool TakesShares(const AttentionShape& shape, const KvView& kv);
// Groups of KV heads that have shares of their own.
int32_t ShareGroups(const AttentionShape& shape);
// Whether the kernel writes AttentionCall::quantized.
bool SharesQuantize(const AttentionShape& shape);
cudaError_t PrepareShareAttention();
cudaError_t LaunchShareAttention(const ShareWork& work, const AttentionCall& call);

// FlashAttention-3 style for sm_90, by head size, over contiguous K and V: those of `qkv`, or the
// gathered copy. No window.
cudaError_t LaunchHopperAttention64(const RaggedWork& work, const AttentionCall& call);
cudaError_t LaunchHopperAttention128(const RaggedWork& work, const AttentionCall& call);
cudaError_t LaunchHopperAttention256(const RaggedWork& work, const AttentionCall& call);
// Rows in a tile.
inline constexpr int32_t HopperTile(int32_t head_dim) {
  return head_dim == 64 ? 192 : 128;
}
cudaError_t LaunchGather(const GatherWork& work, const AttentionCall& call);

// Any head size ≤ 256 that is a multiple of 8, any type of KV.
cudaError_t LaunchPortableAttention(const PortableWork& work, const AttentionCall& call);
cudaError_t LaunchMerge(const MergeWork& work, const AttentionCall& call);

}  // namespace baton::cuda
