#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/input/state_layout.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/kv_view.h"
#include "kernels/ops.h"
#include "kernels/state_chains.h"

namespace baton::cuda {

// A KV block has a multiple of this many tokens, because kernels read tokens in vectors of this
// size.
inline constexpr int32_t kBlockTokenMultiple = 8;

// The blocks of one cache group in a step.
struct GroupLayout {
  // On the host: where the block table of each sequence begins in StepLayout::tables.
  std::vector<int32_t> table_starts;        // [sequences + 1]
  const int32_t* d_table_starts = nullptr;  // the same on the device
  const int32_t* d_row_blocks = nullptr;    // [rows]; arena block for the row's KV, -1: none
};

// The padded input of a step, and its addresses on the device.
//
// A step is *recorded* when it only decodes: every sequence has one row, and the logits of every
// row are requested. It then runs as a CUDA graph for a padded number of rows, which later steps of
// that size use again. The rows after those of the input are padding: token 0 at position 0, with
// no block to write KV to.
struct StepLayout {
  const StepInput* input = nullptr;
  bool recorded = false;
  int32_t rows = 0;        // padded
  int32_t logit_rows = 0;  // padded
  int32_t sequences = 0;   // padded

  // On the host: the packed block tables of one group after the other. They have exactly the blocks
  // that hold the context + row_count tokens of each sequence. Padding sequences have no blocks.
  // Then the lists of blocks of states.
  std::vector<int32_t> tables;
  std::vector<GroupLayout> groups;  // the cache groups of the KV view
  StateLayout states;
  StateChunks chunks;
  StateLayout walked;  // without the sequences of `chunks`, if there are any

  // Device addresses of arrays of fixed size.
  const int32_t* d_tokens = nullptr;      // [rows]
  const int32_t* d_positions = nullptr;   // [rows]
  const int32_t* d_logit_rows = nullptr;  // [logit_rows]
  const int32_t* d_lengths = nullptr;     // [sequences]; context + row_count
  // Device address of the packed block tables, the first list in the buffer of lists.
  const int32_t* d_tables = nullptr;

  // Checks `input` against `kv` and writes it into the buffers, which must be empty. `input` must
  // outlive this object. Errors: InvalidArgument that names the mismatch.
  Status Build(const StepInput& input,
               const KvView& kv,
               int32_t padded_rows,  // 0: not recorded
               StepBuffer& fixed,
               StepBuffer& lists);

 private:
  // Packs the block tables of a cache group. Errors: as Build.
  Status BuildGroup(const KvView& kv, int32_t group, StepBuffer& fixed);
  // Appends the lists of blocks of states to the block tables. Errors: as Build.
  Status BuildStates(const KvView& kv, StepBuffer& fixed);
  // Divides the sequences between `chunks` and `walked`.
  void BuildChunks(StepBuffer& fixed);

  // Kept from step to step.
  std::vector<int32_t> lengths_;
  std::vector<int32_t> row_blocks_;
  std::vector<int32_t> padded_;
  StateChains chains_;
  std::vector<StateRows> state_rows_;
  std::vector<int32_t> chain_starts_;
  std::vector<StateChunk> state_chunks_;
  std::vector<int32_t> chunk_starts_;
  std::vector<StateRows> walked_rows_;
  std::vector<int32_t> walked_starts_;
  std::vector<int32_t> walked_list_;
};

}  // namespace baton::cuda
