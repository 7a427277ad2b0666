#include "tests/parity/step_plan.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "tests/parity/host_weights.h"

namespace baton::parity {
namespace {

int32_t BlocksOf(int32_t tokens, int32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

int32_t BlocksOf(const std::vector<std::pair<int32_t, int32_t>>& sequences, int32_t block_tokens) {
  int32_t blocks = 0;
  for (const auto& [context, rows] : sequences) blocks += BlocksOf(context + rows, block_tokens);
  return blocks;
}

}  // namespace

void InStep(Ops& ops, const std::function<void()>& body) {
  History history(ops, {1, 1, 8}, DType::kF32, 16, {{0, 1}});
  const StepPlan plan = history.LastStep();
  BATON_CHECK(ops.BeginStep(plan.input(), history.cache().view).ok(), "step");
  body();
  BATON_CHECK(ops.EndStep().ok(), "step");
}

History::History(Ops& ops,
                 const HeadShape& heads,
                 DType dtype,
                 int32_t block_tokens,
                 std::vector<std::pair<int32_t, int32_t>> sequences)
    : ops_(ops),
      heads_(heads),
      sequences_(std::move(sequences)),
      cache_(ops, dtype, 2, heads, block_tokens, BlocksOf(sequences_, block_tokens) + 2) {
  scales_.assign(2 * static_cast<size_t>(heads.kv_heads), 1.0f);
  if (dtype == DType::kFp8) {
    for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = 0.01f * static_cast<float>(1 + i % 5);
    scale_vector_ = *ops.LoadVector(scales_);
  }
  std::vector<int32_t> blocks;
  for (int32_t b = 0; b < cache_.view.blocks; ++b) blocks.push_back(b);
  std::mt19937_64 random(7);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const int32_t tokens = sequences_[s].first + sequences_[s].second;
    const int32_t count = BlocksOf(tokens, block_tokens);
    tables_.emplace_back(blocks.end() - count, blocks.end());
    blocks.resize(blocks.size() - static_cast<size_t>(count));
    values_.push_back(RandomActivations(ops, static_cast<size_t>(tokens * width()), 100 + s));
    if (dtype == DType::kFp8) HoldStored(values_.back());
  }
}

void History::HoldStored(std::vector<float>& values) const {
  const auto dim = static_cast<size_t>(heads_.head_dim);
  const auto kv_heads = static_cast<size_t>(heads_.kv_heads);
  const auto row = static_cast<size_t>(width());
  for (size_t at = 0; at < values.size(); ++at) {
    if (at % row < static_cast<size_t>(heads_.q_heads) * dim) continue;
    const size_t head = at % row / dim - static_cast<size_t>(heads_.q_heads);
    values[at] = Rounded(
        ops_.activation_dtype(),
        Stored(
            static_cast<int>(head / kv_heads), static_cast<int32_t>(head % kv_heads), values[at]));
  }
}

int64_t History::width() const {
  return int64_t{heads_.q_heads + 2 * heads_.kv_heads} * heads_.head_dim;
}

const float* History::At(size_t sequence, int32_t position) const {
  return values_[sequence].data() + position * width();
}

void History::Fill() {
  // The old content of a slot must not matter, even when it is NaN (all bits set, in every type).
  const std::vector<std::byte> nan(cache_.buffer->size(), std::byte{0xff});
  BATON_CHECK(ops_.device().CopyIn(*cache_.buffer, 0, nan).ok(), "copy");
  std::vector<std::pair<int32_t, int32_t>> contexts;
  for (const auto& [context, rows] : sequences_) contexts.emplace_back(0, context);
  const StepPlan plan = Step(contexts);
  if (plan.rows() == 0) return;
  const DeviceTensor qkv(ops_, plan.rows(), width(), Rows(plan));
  BATON_CHECK(ops_.BeginStep(plan.input(), cache_.view).ok(), "step");
  RopeArgs rope;
  rope.kv_scales = kv_scales();
  ops_.RopeAndWriteKv(qkv.view(), heads_, rope, 1);
  BATON_CHECK(ops_.EndStep().ok(), "step");
}

StepPlan History::Step(const std::vector<std::pair<int32_t, int32_t>>& rows) const {
  StepPlan plan;
  for (size_t s = 0; s < rows.size(); ++s) {
    const auto [context, count] = rows[s];
    if (count == 0) continue;
    plan.sequences.push_back({static_cast<int32_t>(plan.tokens.size()),
                              count,
                              context,
                              static_cast<int32_t>(plan.tables.size())});
    plan.tables.insert(plan.tables.end(), tables_[s].begin(), tables_[s].end());
    for (int32_t i = 0; i < count; ++i) {
      plan.tokens.push_back(static_cast<TokenId>(s));
      plan.positions.push_back(context + i);
    }
    plan.logit_rows.push_back(static_cast<int32_t>(plan.tokens.size()) - 1);
  }
  return plan;
}

std::vector<float> History::Rows(const StepPlan& plan) const {
  std::vector<float> rows;
  for (size_t i = 0; i < plan.tokens.size(); ++i) {
    const float* row = At(static_cast<size_t>(plan.tokens[i]), plan.positions[i]);
    rows.insert(rows.end(), row, row + width());
  }
  return rows;
}

float History::Stored(int part, int32_t kv_head, float value) const {
  const float scale = scales_.at(int64_t{part} * heads_.kv_heads + kv_head);
  return Rounded(cache_.view.dtype, value / scale) * scale;
}

float History::Held(float value) const {
  return cache_.view.dtype == DType::kFp8 ? value : Rounded(cache_.view.dtype, value);
}

std::vector<double> History::Attend(size_t sequence,
                                    int32_t position,
                                    int32_t begin,
                                    int32_t head,
                                    int32_t kv_head,
                                    const HeadSoftmax& softmax) const {
  const auto dim = static_cast<size_t>(heads_.head_dim);
  const float* q = At(sequence, position) + static_cast<size_t>(head) * dim;
  const size_t k_at = static_cast<size_t>(heads_.q_heads + kv_head) * dim;
  const size_t v_at = static_cast<size_t>(heads_.q_heads + heads_.kv_heads + kv_head) * dim;
  std::vector<double> scores;
  for (int32_t t = begin; t <= position; ++t) {
    double score = 0;
    for (size_t d = 0; d < dim; ++d) {
      score += static_cast<double>(q[d]) * Held(At(sequence, t)[k_at + d]);
    }
    score *= softmax.scale;
    scores.push_back(softmax.cap > 0 ? softmax.cap * std::tanh(score / softmax.cap) : score);
  }
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = softmax.sink ? std::exp(*softmax.sink - maximum) : 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  std::vector<double> out(dim);
  for (int32_t t = begin; t <= position; ++t) {
    const double weight = scores[static_cast<size_t>(t - begin)] / sum;
    for (size_t d = 0; d < dim; ++d) out[d] += weight * Held(At(sequence, t)[v_at + d]);
  }
  return out;
}

}  // namespace baton::parity
