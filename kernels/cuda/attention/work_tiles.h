#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/step_input.h"

// Splits the attention of a step into work tiles for the kernels. Pure functions of the lengths;
// the vectors keep their memory from step to step.
namespace baton::cuda {

// The rows of one sequence in a step.
struct AttentionSequence {
  int32_t index = 0;  // in the step
  int32_t row = 0;    // first row
  int32_t rows = 0;
  int32_t length = 0;  // positions that its last row sees without a window
  int32_t table_start = 0;
  int32_t first_needed = 0;  // the sequence's rows before this one need not be computed
  int32_t stored = 0;  // positions whose KV earlier steps have stored; kernels may load it early
};

// The sequences of `input` that have rows to compute: with `only_logit_rows`, those with logit
// rows. `table_starts` is where their packed block tables begin. Sequences with the same first
// block are rows of one sequence that are computed singly, and see KV that this step stores.
std::vector<AttentionSequence> SequencesToCompute(const StepInput& input,
                                                  std::span<const int32_t> table_starts,
                                                  bool only_logit_rows);

struct PagedLimits {
  int32_t tile = 16;        // packed rows in a work tile
  int32_t group = 1;        // query heads that share a KV head
  int32_t window = 0;       // 0: no window
  int32_t slots = 1;        // work tiles that run at a time
  int32_t fixed_split = 0;  // when not 0, contexts are split at multiples of this
  int32_t padded_rows = 0;  // rows of a recorded step, one per sequence; 0: no padding
  int32_t sequences = 0;    // sequences of the step, with padding
};

// The arrays of a PagedWork.
struct PagedTiles {
  std::vector<int32_t> sequence;
  std::vector<int32_t> query_tile;
  std::vector<int32_t> split;
  std::vector<uint8_t> valid;
  std::vector<int32_t> out_starts;
  std::vector<CombinedRow> combined;  // empty: contexts are not split
  int32_t split_tokens = 0;
  int32_t partials = 0;         // upper bound for every step of the same class
  std::vector<uint64_t> order;  // sort keys of the sequences
};

// Splits contexts when SMs would be idle while one of them reads the longest context. In a recorded
// step all sizes depend only on padded_rows and on whether contexts are split; with a fixed split
// size also on the number of splits, rounded up to a power of two.
void SplitPaged(std::span<const AttentionSequence> sequences,
                const PagedLimits& limits,
                PagedTiles& out);

// Divides all units of `rows` into `count` work tiles whose sizes differ by at most one unit. When
// there are few units, the last work tiles are empty. Sets first_tile and the parts of each row.
// Fewer than count + rows.size() partial results are used.
void SplitStreamK(std::span<StreamKRow> rows, int32_t count, std::vector<WorkTile>& work_tiles);
// The same for deterministic mode: divides each row into splits of equal size that depend on the
// row alone, and all splits in their order into `count` work tiles, so that the largest work tile
// is as small as possible. Returns the number of partial results.
int32_t SplitFixed(std::span<StreamKRow> rows, int32_t count, std::vector<WorkTile>& work_tiles);
// Reorders the work tiles of SplitFixed for SMs that run several of them. Whether an SM runs
// neighbours in the list or work tiles at a regular distance, all SMs get about the same number of
// units.
void SpreadOverSms(std::vector<WorkTile>& work_tiles);
// Units of a split of a row with `units` units: an eighth, but 128 to 512 positions.
int32_t FixedSplitUnits(int32_t units);
// The rows with more than `most` parts, after one of these functions.
std::vector<CombinedRow> RowsOfManyParts(std::span<const StreamKRow> rows, int32_t most);

// The arrays of a RaggedWork.
struct RaggedTiles {
  std::vector<int32_t> starts;
  std::vector<int32_t> head;
  std::vector<int32_t> query_tile;
  std::vector<int32_t> query_start;
  std::vector<int32_t> query_rows;
  std::vector<int32_t> key_start;
  std::vector<int32_t> keys;
  std::vector<int32_t> sequence;
};

// Distributes (head, tile of `tile` rows) over `sm_count` thread blocks, longest first. Leaves out
// tiles without needed rows.
// `key_starts` is where the keys of each sequence begin.
void ScheduleRagged(std::span<const AttentionSequence> sequences,
                    std::span<const int32_t> key_starts,
                    int32_t tile,
                    int32_t q_heads,
                    int32_t sm_count,
                    RaggedTiles& out);

// The arrays of a PortableWork.
struct PortableTiles {
  std::vector<RowTile> list;
  std::vector<CombinedRow> combined;
  int32_t partials = 0;
};

struct PortableLimits {
  int32_t window = 0;              // 0: no window
  int32_t chunk = 0;               // of the context (AttentionArgs::chunk); 0: no chunks
  int32_t padded_rows = 0;         // rows of a recorded step; 0: no padding
  int32_t split = kPortableSplit;  // contexts are split at multiples of this
  int32_t split_rows = 32;         // sequences with more rows are not split
};

// Splits sequences with few rows. The lists of a recorded step are rounded up to powers of two.
void SplitPortable(std::span<const AttentionSequence> sequences,
                   const PortableLimits& limits,
                   PortableTiles& out);

}  // namespace baton::cuda
