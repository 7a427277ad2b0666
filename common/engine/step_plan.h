#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/engine/outcomes.h"
#include "common/engine/sequence.h"
#include "common/engine/step_time.h"
#include "kernels/ops.h"

namespace baton {

enum class RowKind : uint8_t {
  kPrompt,  // a chunk of a prompt, or of tokens that are computed again
  kDecode,  // the newest token
  kVerify,  // the newest token, and drafts behind it
};

// Tokens [first, first + count) of one sequence, which this step computes. `samples` tokens are
// then chosen from the logits of the last token: 0 inside a prompt; one for each sample at the end
// of the prompt, before the fork; 1 otherwise. Of a kVerify row, one is chosen from the logits of
// each token. Before them, the next token of the prompt gets its
// logprob at `scored` positions from `first_scored` on. A request that pools gets hidden states at
// all of these places.
struct PlanRow {
  Sequence* sequence = nullptr;
  int32_t first = 0;
  int32_t count = 0;
  int32_t samples = 0;
  int32_t first_scored = 0;
  int32_t scored = 0;
  RowKind kind = RowKind::kPrompt;
  // Each token is computed as if the others of the row were not in the step
  // (EngineOptions::repeat_output_singly).
  bool singly = false;
  bool reads_state = false;  // Sequence::read_state
  bool in_state = false;     // SequenceRows::in_state
};

// The work of one step: first `copies`, in order, then `rows`.
struct StepPlan {
  std::vector<PlanRow> rows;
  std::vector<BlockCopy> copies;
  std::vector<Outcomes::Chunk> chunks;  // KV that is final after the step; leased to the hand-offs
  size_t decode_rows = 0;               // the first rows, which decode
  int32_t decode_tokens = 0;            // their tokens
  int32_t drafts = 0;                   // total of all rows
  int32_t tokens = 0;                   // total of all rows
  int32_t logit_rows = 0;               // total samples and scored positions of all rows
  int32_t scored = 0;                   // total of all rows
  int32_t state_rows = 0;               // those logit rows whose hidden states are wanted
  int32_t preempted = 0;                // sequences sent back to the queue to free blocks
  StepWork work;                        // total of all rows
  // The tokens that this step will choose are already in their sequences, as ChosenBefore, because
  // the next plan computes them.
  bool foreseen = false;

  RowResults results() const {
    if (state_rows == 0) return RowResults::kLogits;
    return state_rows == logit_rows ? RowResults::kStates : RowResults::kBoth;
  }

  void Clear() {
    rows.clear();
    copies.clear();
    chunks.clear();
    decode_rows = 0;
    tokens = logit_rows = scored = state_rows = preempted = decode_tokens = drafts = 0;
    work = {};
    foreseen = false;
  }
};

}  // namespace baton
