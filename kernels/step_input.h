#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/base/token_id.h"

namespace baton {

// The rows of one sequence in a step, which are consecutive. Row i has position context + i and
// attends to positions 0 … context + i. A later sequence may share the blocks of an earlier one and
// attend to the rows that the step computes of it.
struct SequenceRows {
  int32_t first_row = 0;
  int32_t row_count = 0;
  int32_t context = 0;      // tokens whose KV is in the cache before this step
  int32_t first_block = 0;  // where its block tables begin in StepInput::block_tables
  // The entries of its block table in each cache group; the tables of the groups follow each other.
  // With one group it may be 0.
  int32_t table_blocks = 0;
  // Where the lists of blocks of its state begin in StepInput::block_tables: those of the state
  // after `context` tokens, which is read unless `context` is 0, then those of the state after all
  // of its rows, which is written. Each list has StepInput::state_blocks blocks; both may be the
  // same. An earlier sequence of the step may write the state that a later one reads.
  int32_t state_table = 0;
  // The state that is read is already that after the first row, the only one, which is computed
  // again. Then the lists are the same, and the state is not changed.
  bool in_state = false;

  int32_t TableOf(int32_t group) const { return first_block + group * table_blocks; }
};

// The placeholder in StepInput::tokens for the token that the previously issued step samples for
// its logit row `index`. For backends that queue steps (Ops::queues_steps).
constexpr TokenId ChosenBefore(int32_t index) {
  return -1 - index;
}

// What a step computes of its logit rows.
enum class RowResults : uint8_t {
  kLogits,
  kStates,  // the hidden states after the final norm
  kBoth,
};

// The input of one step. Block tables list arena blocks in the order of a sequence's tokens and
// cover context + row_count tokens. In a group with a window, entries before the window are any
// blocks of the sequence. The spans must stay valid until the step is issued. In a model whose
// layers have states, block_tables has the blocks of states, too.
struct StepInput {
  std::span<const TokenId> tokens;          // [rows]; ids, or ChosenBefore
  std::span<const int32_t> positions;       // [rows]
  std::span<const SequenceRows> sequences;  // cover all rows, in order
  std::span<const int32_t> block_tables;
  std::span<const int32_t> logit_rows;  // rows whose results are wanted, ascending
  RowResults results = RowResults::kLogits;
  int32_t state_blocks = 0;  // arena blocks of a state; 0: no layer has one
};

// The first of the rows first, first + 1, …, first + count − 1 whose logits are wanted; first +
// count when there is none.
inline int32_t FirstLogitRow(const StepInput& input, int32_t first, int32_t count) {
  const auto found = std::ranges::lower_bound(input.logit_rows, first);
  return found == input.logit_rows.end() ? first + count : std::min(*found, first + count);
}

// Attention heads of one rank: a fused projection is [q heads | k heads | v heads] × head_dim.
struct HeadShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;

  bool operator==(const HeadShape&) const = default;
};

enum class RopePairing {
  kHalves,    // (i, i + d/2): Hugging Face checkpoints
  kAdjacent,  // (2i, 2i + 1): llama.cpp's GGUF files of Llama models, whose q and k rows are
              // permuted
};

struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace baton
