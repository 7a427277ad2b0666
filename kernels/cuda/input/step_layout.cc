#include "kernels/cuda/input/step_layout.h"

#include <algorithm>
#include <span>

#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

Status CheckKv(const KvView& kv) {
  if (kv.base == nullptr || kv.blocks < 1) return InvalidArgument("step: the KV view is empty");
  if (kv.block_tokens < 1 || kv.block_tokens % kBlockTokenMultiple != 0) {
    return InvalidArgument("step: KV blocks of {} tokens; the number must be a multiple of {}",
                           kv.block_tokens,
                           kBlockTokenMultiple);
  }
  if (kv.k_dim_major) return InvalidArgument("step: the CUDA backend stores K [token][dim]");
  if (kv.dtype != DType::kBF16 && kv.dtype != DType::kF16 && kv.dtype != DType::kF32 &&
      kv.dtype != DType::kFp8) {
    return InvalidArgument("step: a KV cache of type {}; it must be bf16, f16, f32 or fp8",
                           Name(kv.dtype));
  }
  return OkStatus();
}

Status CheckRows(const StepInput& input) {
  const auto rows = static_cast<int64_t>(input.tokens.size());
  if (rows == 0 || input.positions.size() != input.tokens.size()) {
    return InvalidArgument(
        "step: {} tokens and {} positions; there must be one position for each token, and at least "
        "one token",
        input.tokens.size(),
        input.positions.size());
  }
  int64_t next = 0;
  for (const SequenceRows& sequence : input.sequences) {
    if (sequence.first_row != next || sequence.row_count < 1 || sequence.context < 0) {
      return InvalidArgument(
          "step: a sequence begins at row {} with {} rows after a context of {} tokens; it must "
          "begin at row {} with at least one row",
          sequence.first_row,
          sequence.row_count,
          sequence.context,
          next);
    }
    next += sequence.row_count;
  }
  if (next != rows) return InvalidArgument("step: sequences cover {} of {} rows", next, rows);
  for (const int32_t row : input.logit_rows) {
    if (row < 0 || row >= rows) {
      return InvalidArgument("step: logits of row {} are requested; there are {} rows", row, rows);
    }
  }
  return OkStatus();
}

}  // namespace

Status StepLayout::Build(const StepInput& in,
                         const KvView& kv,
                         int32_t padded_rows,
                         StepBuffer& fixed,
                         StepBuffer& lists) {
  BATON_RETURN_IF_ERROR(CheckKv(kv));
  BATON_RETURN_IF_ERROR(CheckRows(in));
  input = &in;
  recorded = padded_rows > 0;
  rows = recorded ? padded_rows : static_cast<int32_t>(in.tokens.size());
  logit_rows = recorded ? padded_rows : static_cast<int32_t>(in.logit_rows.size());
  sequences = recorded ? padded_rows : static_cast<int32_t>(in.sequences.size());

  tables.clear();
  lengths_.clear();
  for (const SequenceRows& sequence : in.sequences) {
    lengths_.push_back(sequence.context + sequence.row_count);
  }
  lengths_.resize(sequences, 0);
  padded_.assign(in.tokens.begin(), in.tokens.end());
  padded_.resize(rows, 0);
  d_tokens = fixed.Write(std::span<const int32_t>(padded_));
  padded_.assign(in.positions.begin(), in.positions.end());
  padded_.resize(rows, 0);
  d_positions = fixed.Write(std::span<const int32_t>(padded_));
  groups.resize(kv.groups);
  for (int32_t group = 0; group < kv.groups; ++group) {
    BATON_RETURN_IF_ERROR(BuildGroup(kv, group, fixed));
  }
  states = {};
  chunks = {};
  walked = {};
  if (kv.state.block_bytes > 0) BATON_RETURN_IF_ERROR(BuildStates(kv, fixed));
  padded_.assign(in.logit_rows.begin(), in.logit_rows.end());
  for (int32_t row = static_cast<int32_t>(padded_.size()); row < logit_rows; ++row) {
    padded_.push_back(row);
  }
  d_logit_rows = fixed.Write(std::span<const int32_t>(padded_));
  d_lengths = fixed.Write(std::span<const int32_t>(lengths_));
  d_tables = states.d_tables = walked.d_tables = lists.Write(std::span<const int32_t>(tables));
  return OkStatus();
}

Status StepLayout::BuildGroup(const KvView& kv, int32_t group, StepBuffer& fixed) {
  GroupLayout& layout = groups[group];
  layout.table_starts.clear();
  row_blocks_.clear();
  for (const SequenceRows& sequence : input->sequences) {
    const int32_t length = sequence.context + sequence.row_count;
    const int32_t blocks = CeilDiv(length, kv.block_tokens);
    const int32_t first = sequence.TableOf(group);
    if (first < 0 || std::cmp_greater(int64_t{first} + blocks, input->block_tables.size())) {
      return InvalidArgument("step: a block table needs {} entries from index {} on; there are {}",
                             blocks,
                             first,
                             input->block_tables.size());
    }
    const auto table = input->block_tables.subspan(first, blocks);
    for (const int32_t block : table) {
      if (block < 0 || block >= kv.blocks) {
        return InvalidArgument("step: block {} is not in the arena of {} blocks", block, kv.blocks);
      }
    }
    layout.table_starts.push_back(static_cast<int32_t>(tables.size()));
    tables.insert(tables.end(), table.begin(), table.end());
    for (int32_t i = sequence.context; i < length; ++i) {
      row_blocks_.push_back(table[i / kv.block_tokens]);
    }
  }
  layout.table_starts.resize(sequences + 1, static_cast<int32_t>(tables.size()));
  row_blocks_.resize(rows, -1);
  layout.d_table_starts = fixed.Write(std::span<const int32_t>(layout.table_starts));
  layout.d_row_blocks = fixed.Write(std::span<const int32_t>(row_blocks_));
  return OkStatus();
}

Status StepLayout::BuildStates(const KvView& kv, StepBuffer& fixed) {
  const auto listed = static_cast<int64_t>(input->block_tables.size());
  const int64_t blocks = 2 * int64_t{input->state_blocks};
  for (const SequenceRows& sequence : input->sequences) {
    const int64_t first = sequence.state_table;
    if (blocks == 0 || first < 0 || first + blocks > listed) {
      return InvalidArgument(
          "step: the states need {} entries from index {} on; there are {}", blocks, first, listed);
    }
    for (const int32_t block : input->block_tables.subspan(first, blocks)) {
      if (block < 0 || block >= kv.blocks) {
        return InvalidArgument(
            "step: block {} of a state is not in the arena of {} blocks", block, kv.blocks);
      }
    }
  }
  chains_.Build(*input, kv.blocks);
  state_rows_.clear();
  chain_starts_.assign(1, 0);
  for (size_t chain = 0; chain < chains_.size(); ++chain) {
    for (const int32_t index : chains_.chain(chain)) {
      const SequenceRows& sequence = input->sequences[index];
      const auto before = StateBefore(*input, sequence);
      const auto after = StateAfter(*input, sequence);
      const auto start = static_cast<int32_t>(tables.size());
      tables.insert(tables.end(), before.begin(), before.end());
      tables.insert(tables.end(), after.begin(), after.end());
      const bool exists = sequence.context > 0 || sequence.in_state;
      state_rows_.push_back({.first_row = sequence.first_row,
                             .row_count = sequence.row_count,
                             .context = sequence.context,
                             .before = exists ? start : -1,
                             .after = sequence.in_state ? -1 : start + input->state_blocks,
                             .same = exists && std::ranges::equal(before, after) ? 1 : 0});
    }
    chain_starts_.push_back(static_cast<int32_t>(state_rows_.size()));
  }
  BuildChunks(fixed);
  states.single_rows = input->tokens.size() == input->sequences.size();
  states.chains = recorded ? sequences : static_cast<int32_t>(chains_.size());
  chain_starts_.resize(states.chains + 1, static_cast<int32_t>(state_rows_.size()));
  state_rows_.resize(sequences);
  states.d_rows = fixed.Write(std::span<const StateRows>(state_rows_));
  states.d_chain_starts = fixed.Write(std::span<const int32_t>(chain_starts_));
  return OkStatus();
}

void StepLayout::BuildChunks(StepBuffer& fixed) {
  state_chunks_.clear();
  chunk_starts_.assign(1, 0);
  walked_rows_.clear();
  walked_starts_.assign(1, 0);
  walked_list_.clear();
  for (size_t chain = 0; chain + 1 < chain_starts_.size(); ++chain) {
    const int32_t begin = chain_starts_[chain];
    const int32_t end = chain_starts_[chain + 1];
    const StateRows& first = state_rows_[begin];
    if (end - begin == 1 && first.row_count >= kMinChunkedRows && first.after >= 0) {
      for (int32_t row = 0; row < first.row_count; row += kStateChunkRows) {
        const int32_t count = std::min(kStateChunkRows, first.row_count - row);
        state_chunks_.push_back({.sequence = begin, .first = row, .row_count = count});
      }
      chunk_starts_.push_back(static_cast<int32_t>(state_chunks_.size()));
      continue;
    }
    for (int32_t index = begin; index < end; ++index) {
      const StateRows& sequence = state_rows_[index];
      walked_rows_.push_back(sequence);
      for (int32_t i = 0; i < sequence.row_count; ++i) {
        walked_list_.push_back(sequence.first_row + i);
      }
    }
    walked_starts_.push_back(static_cast<int32_t>(walked_rows_.size()));
  }
  if (state_chunks_.empty()) return;
  chunks.chunks = static_cast<int32_t>(state_chunks_.size());
  chunks.sequences = static_cast<int32_t>(chunk_starts_.size()) - 1;
  chunks.d_chunks = fixed.Write(std::span<const StateChunk>(state_chunks_));
  chunks.d_chunk_starts = fixed.Write(std::span<const int32_t>(chunk_starts_));
  if (walked_rows_.empty()) return;
  walked.chains = static_cast<int32_t>(walked_starts_.size()) - 1;
  walked.single_rows = walked_list_.size() == walked_rows_.size();
  walked.row_count = static_cast<int32_t>(walked_list_.size());
  walked.d_rows = fixed.Write(std::span<const StateRows>(walked_rows_));
  walked.d_chain_starts = fixed.Write(std::span<const int32_t>(walked_starts_));
  walked.d_row_list = fixed.Write(std::span<const int32_t>(walked_list_));
}

}  // namespace baton::cuda
