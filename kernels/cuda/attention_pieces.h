#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention_kernels.h"

// How the attention of a step is cut into pieces of work for the kernels. Pure functions of the
// lengths; the vectors keep their memory from step to step.
namespace baton::cuda {

// The rows of one sequence of a step.
struct AttendingSequence {
  int32_t index = 0;  // in the step
  int32_t row = 0;    // first
  int32_t rows = 0;
  int32_t length = 0;  // positions its last row sees, when there is no window
  int32_t table_start = 0;
};

struct PagedLimits {
  int32_t tile = 16;        // packed rows in a piece
  int32_t group = 1;        // query heads that share a KV head
  int32_t window = 0;       // 0: none
  int32_t slots = 1;        // pieces that run at a time
  int32_t fixed_part = 0;   // when set, contexts are split at multiples of this alone
  int32_t padded_rows = 0;  // of a recorded step, one row a sequence; 0: no padding
  int32_t sequences = 0;    // of the step, with padding
};

// The arrays of a PagedWork.
struct PagedPieces {
  std::vector<int32_t> sequence;
  std::vector<int32_t> query_tile;
  std::vector<int32_t> part;
  std::vector<uint8_t> valid;
  std::vector<int32_t> out_starts;
  std::vector<MergedRow> merged;  // empty: contexts are whole
  int32_t part_tokens = 0;
  int32_t partials = 0;         // at most, for any step of the same class
  std::vector<uint64_t> order;  // of sequences, while cutting
};

// Contexts are split when the longest would keep the device waiting. In a recorded step all sizes
// depend on padded_rows and on whether contexts are split (with fixed parts, into how many, rounded
// up to a power of two) alone.
void CutPaged(std::span<const AttendingSequence> sequences,
              const PagedLimits& limits,
              PagedPieces& out);

// Cuts all units of `rows` into `count` shares that differ by one unit at most; when there are few
// units, the last shares have none. Sets the rows' shares.
void CutShares(std::span<SharedRow> rows, int32_t count, std::vector<Share>& shares);
// Of rows that CutShares has cut, those in more than `most` shares, as ShareWork::partial has them.
std::vector<MergedRow> RowsInManyShares(std::span<const SharedRow> rows, int32_t most);

// The arrays of a RaggedWork.
struct RaggedPieces {
  std::vector<int32_t> starts;
  std::vector<int32_t> head;
  std::vector<int32_t> query_tile;
  std::vector<int32_t> query_start;
  std::vector<int32_t> query_rows;
  std::vector<int32_t> key_start;
  std::vector<int32_t> keys;
  std::vector<int32_t> sequence;
};

// Spreads (head, tile of `tile` rows) over `processors` thread blocks, the longest first.
// `key_starts` is where the keys of each sequence begin.
void CutRagged(std::span<const AttendingSequence> sequences,
               std::span<const int32_t> key_starts,
               int32_t tile,
               int32_t q_heads,
               int32_t processors,
               RaggedPieces& out);

// The arrays of a PortableWork.
struct PortablePieces {
  std::vector<RowPiece> list;
  std::vector<MergedRow> merged;
  int32_t partials = 0;
};

// Sequences of few rows are split into parts of kPortablePart positions. A recorded step's lists
// are rounded up to powers of two.
void CutPortable(std::span<const AttendingSequence> sequences,
                 int32_t window,
                 int32_t padded_rows,
                 PortablePieces& out);

}  // namespace baton::cuda
