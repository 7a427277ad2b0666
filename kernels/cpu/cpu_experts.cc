#include <algorithm>
#include <numeric>
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

// Computes the softmax over all scores of a row and adds the row to its best experts_per_token
// experts (the lower index on ties).
void Route(const KernelTable& kernels,
           std::span<float> scores,
           int64_t row,
           const ExpertArgs& args,
           std::vector<std::vector<Turn>>& turns) {
  const int64_t best = kernels.arg_max(scores.data(), static_cast<int64_t>(scores.size()));
  const float maximum = best < 0 ? 0.0f : scores[static_cast<size_t>(best)];
  const float sum =
      kernels.exp_sum(scores.data(), static_cast<int64_t>(scores.size()), 1.0f, maximum);
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(static_cast<size_t>(args.experts_per_token), scores.size());
  std::partial_sort(order.begin(),
                    order.begin() + static_cast<ptrdiff_t>(count),
                    order.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = scores[static_cast<size_t>(a)];
                      const float y = scores[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  float chosen = 0;
  for (size_t i = 0; i < count; ++i) chosen += scores[static_cast<size_t>(order[i])];
  for (size_t i = 0; i < count; ++i) {
    const auto expert = static_cast<size_t>(order[i]);
    turns[expert].push_back({row, scores[expert] / (args.normalize ? chosen : sum)});
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
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(FloatRow(step.x, turns[static_cast<size_t>(i)].row),
                step.x.cols,
                FloatRow(step.gathered, i));
  }
  const auto index = static_cast<size_t>(expert - step.held.begin);
  const Tensor hidden = step.hidden.Rows(0, count);
  const Tensor result = step.result.Rows(0, count);
  MatMulSiluMul(step.gathered.Rows(0, count), *step.args.gate_up[index], nullptr, hidden);
  MatMul(hidden, *step.args.down[index], nullptr, result);
  for (int64_t i = 0; i < count; ++i) {
    const Turn& turn = turns[static_cast<size_t>(i)];
    kernels_.add_scaled(FloatRow(result, i), turn.weight, sum.cols, FloatRow(sum, turn.row));
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
                  args.experts_per_token > 0,
              "{} experts of [{}, {}), {} down matrices, {} per token",
              args.gate_up.size(),
              held.begin,
              held.end,
              args.down.size(),
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
  MatMul(x, *args.router, nullptr, scores);
  step.turns.resize(static_cast<size_t>(experts));
  for (int64_t row = 0; row < x.rows; ++row) {
    Route(kernels_, {FloatRow(scores, row), static_cast<size_t>(experts)}, row, args, step.turns);
    std::fill_n(FloatRow(out, row), out.cols, 0.0f);
  }
  SumExpertParts(step, take(sums_cols), out);
}

}  // namespace baton::cpu
