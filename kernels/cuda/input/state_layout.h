#pragma once

#include <cstdint>

namespace baton::cuda {

// The rows of a sequence, and where the lists of blocks of its states begin in StepLayout::tables.
struct StateRows {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t context = 0;
  int32_t before = 0;  // SequenceRows::state_table; -1: there is no state yet
  int32_t after = 0;   // -1: the state is not changed (SequenceRows::in_state)
  int32_t same = 0;    // 1: both have the same blocks
};

// Rows of a sequence that chunked kernels compute together, and the fewest rows of a sequence for
// which they are used.
inline constexpr int32_t kStateChunkRows = 64;
inline constexpr int32_t kMinChunkedRows = 32;

// A chunk of the rows of a sequence.
struct StateChunk {
  int32_t sequence = 0;  // in StateLayout::d_rows
  int32_t first = 0;     // row of the sequence
  int32_t row_count = 0;
  int32_t unused = 0;
};

// The states of a step, for models whose layers have some. The kernels compute the sequences of a
// chain in order, and all chains at the same time.
struct StateLayout {
  int32_t chains = 0;                       // padded; 0: no layer has a state
  bool single_rows = false;                 // each sequence has one row
  const StateRows* d_rows = nullptr;        // [sequences], chain by chain
  const int32_t* d_chain_starts = nullptr;  // [chains + 1]; in d_rows
  const int32_t* d_tables = nullptr;        // StepLayout::d_tables
  // The rows of the sequences, where these are not all of the step.
  int32_t row_count = 0;
  const int32_t* d_row_list = nullptr;  // null: all rows of the step
};

// The sequences of a step that chunked kernels may compute: each is in a chain of its own and has
// at least kMinChunkedRows rows, which are not in its state.
struct StateChunks {
  int32_t chunks = 0;
  int32_t sequences = 0;
  const StateChunk* d_chunks = nullptr;     // [chunks], sequence by sequence
  const int32_t* d_chunk_starts = nullptr;  // [sequences + 1]; in d_chunks
};

}  // namespace baton::cuda
