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

// The states of a step, for models whose layers have some. The kernels compute the sequences of a
// chain in order, and all chains at the same time.
struct StateLayout {
  int32_t chains = 0;                       // padded; 0: no layer has a state
  bool single_rows = false;                 // each sequence has one row
  const StateRows* d_rows = nullptr;        // [sequences], chain by chain
  const int32_t* d_chain_starts = nullptr;  // [chains + 1]; in d_rows
  const int32_t* d_tables = nullptr;        // StepLayout::d_tables
};

}  // namespace baton::cuda
