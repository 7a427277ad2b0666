#include "common/engine/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "common/base/check.h"
#include "common/engine/sequence_masks.h"

namespace baton {
namespace {

// Copies the indices of `blocks` to `to`, where kernels read them; returns the end. Leases hold
// blocks of the arena alone, so the value of each id is its index.
int32_t* PutBlocks(std::span<const BlockId> blocks, int32_t* to) {
  static_assert(sizeof(BlockId) == sizeof(int32_t) && std::is_trivially_copyable_v<BlockId>);
  std::memcpy(to, blocks.data(), blocks.size_bytes());
  return to + blocks.size();
}

// The token that sample `sample` must choose at output token `index`.
TokenId ForcedOf(const Request& request, size_t index, int32_t sample) {
  return index > 0 || request.labels.empty() ? kNoToken
                                             : request.labels[static_cast<size_t>(sample)];
}

}  // namespace

void Batch::Build(const StepPlan& plan) {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  block_tables_.clear();
  logit_rows_.clear();
  sampling_.clear();
  results_ = plan.results();
  state_blocks_ = 0;
  for (const PlanRow& row : plan.rows) AddRow(row);
}

void Batch::BuildSampling(const StepPlan& plan, std::span<float> states) {
  sampling_.clear();
  const size_t width =
      plan.state_rows == 0 ? 0 : states.size() / static_cast<size_t>(plan.state_rows);
  for (const PlanRow& row : plan.rows) {
    row.sequence->request->request.pools() ? AddPooled(row, width, states) : AddSampling(row);
  }
}

StepInput Batch::input() const {
  return {.tokens = tokens_,
          .positions = positions_,
          .sequences = sequences_,
          .block_tables = block_tables_,
          .logit_rows = logit_rows_,
          .results = results_,
          .state_blocks = state_blocks_};
}

void Batch::AddRow(const PlanRow& row) {
  const Sequence& sequence = *row.sequence;
  const auto first_row = static_cast<int32_t>(tokens_.size());
  const int32_t blocks = sequence.table.size();
  const size_t first_sequence = sequences_.size();
  // Rows that are computed singly look like sequences with the same blocks.
  const int32_t parts = row.singly ? row.count : 1;
  for (int32_t part = 0; part < parts; ++part) {
    sequences_.push_back({.first_row = first_row + part,
                          .row_count = row.count / parts,
                          .context = row.first + part,
                          .first_block = static_cast<int32_t>(block_tables_.size()),
                          .table_blocks = blocks});
  }
  const std::span<const TokenId> all(sequence.tokens);
  const auto added = all.subspan(row.first, row.count);
  tokens_.insert(tokens_.end(), added.begin(), added.end());
  positions_.resize(tokens_.size());
  std::iota(positions_.begin() + first_row, positions_.end(), row.first);
  const int32_t groups = sequence.table.groups();
  const size_t begin = block_tables_.size();
  block_tables_.resize(begin + static_cast<size_t>(groups) * blocks);
  int32_t* to = block_tables_.data() + begin;
  for (int32_t group = 0; group < groups; ++group) {
    to = PutBlocks(sequence.table.blocks(group).first(blocks), to);
  }
  if (!sequence.table.state().empty()) AddStates(row, first_sequence);
  for (int32_t at = row.first_scored; at < row.first_scored + row.scored; ++at) {
    logit_rows_.push_back(first_row + at - row.first);
  }
  if (row.kind == RowKind::kVerify) {
    for (int32_t i = 0; i < row.samples; ++i) logit_rows_.push_back(first_row + i);
  } else {
    logit_rows_.insert(logit_rows_.end(), row.samples, first_row + row.count - 1);
  }
}

// Adds the blocks of the states that a row reads and writes. Of rows that are computed singly, each
// reads the state that the one before writes.
void Batch::AddStates(const PlanRow& row, size_t first_sequence) {
  const std::span<const BlockId> written = row.sequence->table.state();
  state_blocks_ = static_cast<int32_t>(written.size());
  const auto first = static_cast<int32_t>(block_tables_.size());
  const auto add = [this](std::span<const BlockId> blocks) {
    const size_t begin = block_tables_.size();
    block_tables_.resize(begin + blocks.size());
    PutBlocks(blocks, block_tables_.data() + begin);
  };
  add(row.reads_state ? row.sequence->read_state->state() : written);
  add(written);
  const auto added = std::span(sequences_).subspan(first_sequence);
  if (added.size() > 1) add(written);
  for (SequenceRows& rows : added) {
    rows.state_table = first + (&rows == added.data() ? 0 : state_blocks_);
  }
  added.front().in_state = row.in_state;
}

// In a step that also has logits, a row whose state is wanted chooses a token, which nobody reads.
void Batch::AddPooled(const PlanRow& row, size_t width, std::span<float>& states) {
  for (int32_t i = 0; i < row.scored + row.samples; ++i) {
    sampling_.push_back(
        {.params = &row.sequence->request->sampling[0], .forced = 0, .state = states.first(width)});
    states = states.subspan(width);
  }
}

void Batch::AddSampling(const PlanRow& row) {
  const Sequence& sequence = *row.sequence;
  const Request& request = sequence.request->request;
  const std::span<const TokenId> all(sequence.tokens);
  const auto prompt = all.first(request.prompt_length);
  // The output of a sequence that has ended may end with a token that was foreseen.
  const bool runs = sequence.state == SequenceState::kRunning;
  const auto output = runs ? all.subspan(request.prompt_length) : std::span<const TokenId>();
  // Before the fork, all samples have the same output and share a mask.
  const SequenceMask* masks = runs ? sequence.mask.get() : nullptr;
  for (int32_t at = row.first_scored; at < row.first_scored + row.scored; ++at) {
    sampling_.push_back({.params = &sequence.request->prompt_sampling, .forced = all[at + 1]});
  }
  const bool verifies = row.kind == RowKind::kVerify;
  for (int32_t i = 0; i < row.samples; ++i) {
    // The tokens before the one that is chosen, without the drafts behind them.
    const size_t behind = verifies ? row.samples - 1 - i : 0;
    const auto before = output.first(output.size() - std::min(behind, output.size()));
    const bool may_stop = std::cmp_greater_equal(before.size(), request.min_tokens);
    sampling_.push_back({.params = &sequence.request->sampling[sequence.index + (verifies ? 0 : i)],
                         .position = all.size() - behind,
                         .prompt = prompt,
                         .output = before,
                         .banned = may_stop ? std::span<const TokenId>() : request.stop_tokens,
                         .mask = masks == nullptr ? nullptr : &masks->After(before.size()),
                         .waits_for_mask = !sequence.request->forked,
                         .forced = ForcedOf(request, output.size(), sequence.index + i)});
  }
}

}  // namespace baton
