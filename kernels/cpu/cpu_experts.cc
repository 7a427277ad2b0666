#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "kernels/cpu/cpu_ops.h"

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

}  // namespace

void CpuOps::Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) {
  const auto experts = static_cast<int64_t>(args.gate_up.size());
  BATON_CHECK(experts > 0 && args.down.size() == args.gate_up.size() &&
                  args.router->rows() == experts && args.experts_per_token > 0,
              "{} experts, {} down matrices, {} router rows, {} per token",
              experts,
              args.down.size(),
              args.router->rows(),
              args.experts_per_token);
  const int64_t width = args.down[0]->cols();
  const int64_t row_size = experts + 2 * x.cols + width;
  expert_scratch_.resize(static_cast<size_t>(x.rows * row_size));
  float* memory = expert_scratch_.data();
  const auto take = [&](int64_t cols) {
    Tensor tensor{reinterpret_cast<std::byte*>(memory), DType::kF32, x.rows, cols, cols};
    memory += x.rows * cols;
    return tensor;
  };
  const Tensor scores = take(experts);
  const Tensor gathered = take(x.cols);
  const Tensor hidden = take(width);
  const Tensor result = take(x.cols);

  MatMul(x, *args.router, nullptr, scores);
  std::vector<std::vector<Turn>> turns(static_cast<size_t>(experts));
  for (int64_t row = 0; row < x.rows; ++row) {
    Route(kernels_, {FloatRow(scores, row), static_cast<size_t>(experts)}, row, args, turns);
    std::fill_n(FloatRow(out, row), out.cols, 0.0f);
  }
  // In order of experts, so that every row adds the outputs of its experts in that order.
  for (size_t expert = 0; expert < turns.size(); ++expert) {
    const auto count = static_cast<int64_t>(turns[expert].size());
    if (count == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(
          FloatRow(x, turns[expert][static_cast<size_t>(i)].row), x.cols, FloatRow(gathered, i));
    }
    MatMulSiluMul(gathered.Rows(0, count), *args.gate_up[expert], nullptr, hidden.Rows(0, count));
    MatMul(hidden.Rows(0, count), *args.down[expert], nullptr, result.Rows(0, count));
    for (int64_t i = 0; i < count; ++i) {
      const Turn& turn = turns[expert][static_cast<size_t>(i)];
      kernels_.add_scaled(FloatRow(result, i), turn.weight, out.cols, FloatRow(out, turn.row));
    }
  }
}

}  // namespace baton::cpu
