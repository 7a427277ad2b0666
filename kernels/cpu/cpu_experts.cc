#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/expert_parts.h"

namespace baton::cpu {
namespace {

// A row that is routed to an expert, and the weight of the expert's output for this row.
struct Turn {
  int64_t row;
  float weight;
};

// Orders experts by `scores`, best first (the lower index on ties), up to number `count`.
std::vector<int32_t> BestOf(std::span<const float> scores, size_t count) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(),
                    order.begin() + static_cast<ptrdiff_t>(count),
                    order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = scores[static_cast<size_t>(a)];
                      const float y = scores[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(count);
  return order;
}

// Excludes the experts of all but the best groups: their scores become −∞, because a score with a
// selection bias may be below 0.
void KeepBestGroups(const RouterArgs& routing, std::span<float> scores) {
  const auto groups = static_cast<size_t>(routing.groups);
  const size_t size = scores.size() / groups;
  const size_t counted = routing.group_score == GroupScore::kBest ? 1 : 2;
  std::vector<float> group_scores;
  for (size_t group = 0; group < groups; ++group) {
    const auto of_group = scores.subspan(group * size, size);
    float sum = 0;
    for (const int32_t expert : BestOf(of_group, std::min(counted, size))) {
      sum += of_group[static_cast<size_t>(expert)];
    }
    group_scores.push_back(sum);
  }
  const auto kept = BestOf(group_scores, static_cast<size_t>(routing.groups_per_token));
  for (size_t group = 0; group < groups; ++group) {
    if (std::ranges::find(kept, static_cast<int32_t>(group)) != kept.end()) continue;
    std::ranges::fill(scores.subspan(group * size, size), -std::numeric_limits<float>::infinity());
  }
}

// Replaces the logits of a row by scores times a factor, which it returns.
float Score(const KernelTable& kernels, RouterScore kind, std::span<float> logits) {
  const auto count = static_cast<int64_t>(logits.size());
  if (kind == RouterScore::kSoftmax) {
    const int64_t best = kernels.arg_max(logits.data(), count);
    const float maximum = best < 0 ? 0.0f : logits[static_cast<size_t>(best)];
    return kernels.exp_sum(logits.data(), count, 1.0f, maximum);
  }
  kernels.exp_sum(logits.data(), count, -1.0f, 0.0f);
  for (float& value : logits) value = 1.0f / (1.0f + value);
  return 1.0f;
}

// Adds a row to the experts that its logits choose.
void Route(const KernelTable& kernels,
           std::span<float> logits,
           int64_t row,
           const ExpertArgs& args,
           std::vector<std::vector<Turn>>& turns) {
  const RouterArgs& routing = args.routing;
  std::vector<float> choices(logits.begin(), logits.end());
  const float all = Score(kernels, routing.score, logits);
  const std::span<const float> scores = logits;
  // Sigmoids of large logits are equal.
  if (routing.score != RouterScore::kSigmoidOfLogits) choices.assign(scores.begin(), scores.end());
  if (routing.selection_bias != nullptr) {
    const float* const bias = HostData(*routing.selection_bias);
    for (size_t i = 0; i < choices.size(); ++i) choices[i] = choices[i] / all + bias[i];
  }
  if (routing.groups > 1) KeepBestGroups(routing, choices);
  const auto count = std::min(static_cast<size_t>(args.experts_per_token), scores.size());
  const std::vector<int32_t> order = BestOf(choices, count);
  // A sum of sigmoids may be 0; DeepSeek-V3 adds this.
  float chosen = routing.score == RouterScore::kSoftmax ? 0.0f : 1e-20f;
  for (const int32_t expert : order) chosen += scores[static_cast<size_t>(expert)];
  chosen = std::max(chosen, routing.least_sum * all);
  for (const int32_t number : order) {
    const auto expert = static_cast<size_t>(number);
    const float weight = scores[expert] / (args.normalize ? chosen : all);
    turns[expert].push_back({row, weight * routing.scale});
  }
}

// Consecutive experts.
struct ExpertRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// The experts whose weights this rank has.
ExpertRange HeldExperts(const ExpertArgs& args, int32_t experts, const RankPlace& place) {
  if (args.rank_ends.empty()) return {0, experts};
  const auto rank = static_cast<size_t>(place.tensor_rank);
  return {rank == 0 ? 0 : args.rank_ends[rank - 1], args.rank_ends[rank]};
}

}  // namespace

// The memory of one call of Experts.
struct CpuOps::ExpertStep {
  const Tensor& x;
  const ExpertArgs& args;
  ExpertRange held;
  std::vector<std::vector<Turn>> turns;  // of every expert
  Tensor gathered;                       // the rows of one expert
  Tensor hidden;
  Tensor result;
};

void CpuOps::AddExpert(const ExpertStep& step, int32_t expert, const Tensor& sum) {
  const std::vector<Turn>& turns = step.turns[static_cast<size_t>(expert)];
  const auto count = static_cast<int64_t>(turns.size());
  if (count == 0) return;
  const bool weighs_input = step.args.routing.weighted_inputs;
  for (int64_t i = 0; i < count; ++i) {
    const Turn& turn = turns[static_cast<size_t>(i)];
    float* const input = FloatRow(step.gathered, i);
    std::copy_n(FloatRow(step.x, turn.row), step.x.cols, input);
    if (!weighs_input) continue;
    for (int64_t col = 0; col < step.x.cols; ++col) input[col] *= turn.weight;
  }
  const auto index = static_cast<size_t>(expert - step.held.begin);
  const Tensor hidden = step.hidden.Rows(0, count);
  const Tensor result = step.result.Rows(0, count);
  const ExpertArgs& args = step.args;
  const Tensor gathered = step.gathered.Rows(0, count);
  if (args.gate.ungated) {
    const bool biased = !args.gate_up_bias.empty();
    MatMul(
        gathered, *args.gate_up[index], biased ? args.gate_up_bias[index].get() : nullptr, hidden);
    family_ops_.Activate(hidden, Activation::kSquaredRelu, 1.0f);
  } else {
    matmul_.GatedMultiply(gathered,
                          static_cast<const PackedMatrix&>(*args.gate_up[index]),
                          args.gate_up_bias.empty() ? nullptr : HostData(*args.gate_up_bias[index]),
                          args.gate,
                          hidden);
  }
  MatMul(hidden,
         *args.down[index],
         args.down_bias.empty() ? nullptr : args.down_bias[index].get(),
         result);
  for (int64_t i = 0; i < count; ++i) {
    const Turn& turn = turns[static_cast<size_t>(i)];
    const float weight = weighs_input ? 1.0f : turn.weight;
    kernels_.add_scaled(FloatRow(result, i), weight, sum.cols, FloatRow(sum, turn.row));
  }
}

void CpuOps::SumExpertParts(const ExpertStep& step, const Tensor& sums, const Tensor& out) {
  const auto experts = static_cast<int32_t>(step.turns.size());
  const int32_t parts = ExpertParts(experts);
  const bool whole = step.args.rank_ends.empty();
  const auto sum_of = [&](int32_t part) {
    return whole ? sums : sums.Columns(part * out.cols, out.cols);
  };
  const auto add = [&](int32_t part) {
    ForRows(pool_, out.rows, out.cols / 8, [&](int64_t row) {
      kernels_.add_scaled(FloatRow(sum_of(part), row), 1.0f, out.cols, FloatRow(out, row));
    });
  };
  for (int32_t part = 0; part < parts; ++part) {
    const int32_t begin = FirstOfPart(experts, part);
    const int32_t end = FirstOfPart(experts, part + 1);
    if (begin < step.held.begin || end > step.held.end) continue;
    const Tensor sum = sum_of(part);
    for (int64_t row = 0; row < sum.rows; ++row) std::fill_n(FloatRow(sum, row), sum.cols, 0.0f);
    for (int32_t expert = begin; expert < end; ++expert) AddExpert(step, expert, sum);
    if (whole) add(part);
  }
  if (whole) return;
  std::vector<int64_t> ends;
  for (const int32_t end : step.args.rank_ends) {
    ends.push_back(PartsBefore(experts, end) * out.cols);
  }
  exchange_.AllGather(sums, ends);
  for (int32_t part = 0; part < parts; ++part) add(part);
}

void CpuOps::Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) {
  if (exchange_.failed()) return;
  const auto experts = static_cast<int32_t>(args.router->rows());
  const ExpertRange held = HeldExperts(args, experts, exchange_.place());
  BATON_CHECK(held.begin < held.end && args.down.size() == args.gate_up.size() &&
                  std::cmp_equal(args.gate_up.size(), held.end - held.begin) &&
                  args.gate_up_bias.size() == args.down_bias.size() &&
                  (args.down_bias.empty() || args.down_bias.size() == args.down.size()) &&
                  args.experts_per_token > 0,
              "{} experts of [{}, {}), {} down matrices, {} and {} biases, {} per token",
              args.gate_up.size(),
              held.begin,
              held.end,
              args.down.size(),
              args.gate_up_bias.size(),
              args.down_bias.size(),
              args.experts_per_token);
  const int64_t width = args.down[0]->cols();
  const int64_t sums_cols = args.rank_ends.empty() ? x.cols : ExpertParts(experts) * x.cols;
  const int64_t row_size = experts + 2 * x.cols + width + sums_cols;
  expert_scratch_.resize(static_cast<size_t>(x.rows * row_size));
  float* memory = expert_scratch_.data();
  const auto take = [&](int64_t cols) {
    Tensor tensor{reinterpret_cast<std::byte*>(memory), DType::kF32, x.rows, cols, cols};
    memory += x.rows * cols;
    return tensor;
  };
  const Tensor scores = take(experts);
  ExpertStep step{x, args, held, {}, take(x.cols), take(width), take(x.cols)};
  MatMul(x, *args.router, args.router_bias, scores);
  step.turns.resize(static_cast<size_t>(experts));
  for (int64_t row = 0; row < x.rows; ++row) {
    Route(kernels_, {FloatRow(scores, row), static_cast<size_t>(experts)}, row, args, step.turns);
    std::fill_n(FloatRow(out, row), out.cols, 0.0f);
  }
  SumExpertParts(step, take(sums_cols), out);
}

}  // namespace baton::cpu
