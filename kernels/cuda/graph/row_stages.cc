#include "kernels/cuda/graph/row_stages.h"

#include <algorithm>
#include <utility>

#include "common/base/overloaded.h"

namespace baton::cuda {
namespace {

OutputScales Cut(OutputScales scales, const RowRange& range) {
  if (scales.rows != nullptr) scales.rows += range.first;
  return scales;
}

// What a norm adds to the rows of `range`, before ops are fused.
NormInput Cut(const NormInput& input, const RowRange& range) {
  const auto* const one = std::get_if<DeltaInput>(&input);
  return one == nullptr ? input : DeltaInput{Cut(one->delta, range), Cut(one->scales, range)};
}

template <class Op>
StepOp CutOne(Op op, const RowRange& range) {
  if constexpr (requires { op.problem; }) op.problem = RowsOf(op.problem, range.first, range.count);
  if constexpr (requires { op.x; }) op.x = Cut(op.x, range);
  if constexpr (requires { op.out; }) op.out = Cut(op.out, range);
  if constexpr (requires { op.scales; }) op.scales = Cut(op.scales, range);
  if constexpr (requires { op.gate_up; }) op.gate_up = Cut(op.gate_up, range);
  if constexpr (requires { op.residual; }) op.residual = Cut(op.residual, range);
  if constexpr (requires { op.input; }) op.input = Cut(op.input, range);
  return op;
}

// Whether an op computes each of the step's `rows` rows by itself.
bool IsOfRows(const StepOp& op, int64_t rows) {
  return std::visit(Overloaded{[&](const QuantizeOp& c) { return c.x.rows == rows; },
                               [&](const RescaleOp& c) { return c.x.rows == rows; },
                               [&](const NormOp& c) { return c.residual.rows == rows; },
                               [&](const MatMulOp& c) { return c.problem.rows == rows; },
                               [&](const SiluMulOp& c) { return c.out.rows == rows; },
                               [&](const ExpertsOp& c) { return c.x.rows == rows; },
                               [&](const auto& /*c*/) { return false; }},
                    op);
}

}  // namespace

Tensor Cut(const Tensor& x, const RowRange& range) {
  return x.data == nullptr ? x : x.Rows(range.first, range.count);
}

Fp8Rows Cut(Fp8Rows x, const RowRange& range) {
  if (x.data == nullptr) return x;
  x.data += range.first * x.cols;
  x.scales += range.first;
  x.rows = range.count;
  return x;
}

StepOp Cut(const StepOp& op, const RowRange& range) {
  return std::visit([&](const auto& one) { return CutOne(one, range); }, op);
}

bool RowStages::Take(size_t at) {
  const StepOp& op = graph_.op(at);
  RowStage& stage = stages_.back();
  const bool sums = stage.sum.data != nullptr;
  if (const auto* notify = std::get_if<NotifyOp>(&op)) {
    if (!sums) return false;
    stage.notices.push_back(*notify);
    ++sum_ops_;
    return true;
  }
  if (const auto* exchange = std::get_if<ExchangeOp>(&op)) {
    if (const auto* reduce = std::get_if<ReduceOp>(exchange)) return TakeSum(at, reduce->x, {});
    const auto* const gather = std::get_if<GatherColumnsOp>(exchange);
    return gather != nullptr && gather->to_all && TakeSum(at, gather->whole, gather->ends);
  }
  if (!IsOfRows(op, rows_)) return false;
  if (const auto* norm = std::get_if<NormOp>(&op)) return TakeNorm(at, *norm);
  if (sums) return false;
  if (const auto* quantize = std::get_if<QuantizeOp>(&op)) {
    if (TakeQuantize(at, *quantize)) return true;
  }
  stage.ops.push_back(op);
  return true;
}

// A large sum is listed as the sums of several ranges of rows.
bool RowStages::TakeSum(size_t at, const Tensor& sum, const std::vector<int64_t>& ends) {
  RowStage& stage = stages_.back();
  if (stage.ops.empty() || !stage.notices.empty() || sum.dtype != DType::kBF16 || HasGaps(sum)) {
    return false;
  }
  if (stage.sum.data == nullptr) {
    stage.sum = sum;
    stage.ends = ends;
    sums_ = {at};
    sum_ops_ = 1;
    return true;
  }
  if (sum.data != stage.sum.Rows(stage.sum.rows, 1).data || ends != stage.ends) return false;
  stage.sum.rows += sum.rows;
  sums_.push_back(at);
  ++sum_ops_;
  return true;
}

bool RowStages::TakeNorm(size_t at, const NormOp& norm) {
  const Tensor& sum = stages_.back().sum;
  const Tensor* const delta = TensorIn(norm.input);
  if (sum.data == nullptr || sum.rows != rows_ || delta == nullptr ||
      graph_.Producers(at, Place::Of(*delta)) != sums_) {
    return false;
  }
  if (norm_ && graph_.Producer(at, Place::Of(norm.residual)) != norm_) return false;
  stages_.emplace_back().norm = norm;
  norm_ = at;
  sum_ops_ = 0;
  return true;
}

bool RowStages::TakeQuantize(size_t at, const QuantizeOp& quantize) {
  RowStage& stage = stages_.back();
  const Place x = Place::Of(quantize.x);
  if (!stage.norm || stage.quantize || !stage.ops.empty() || graph_.Producer(at, x) != norm_) {
    return false;
  }
  stage.quantize = quantize;
  stage.reads_only_fp8 = graph_.SoleProducer(at, x).has_value();
  return true;
}

size_t RowStages::DropSum() {
  RowStage& stage = stages_.back();
  stage.sum = {};
  stage.ends.clear();
  stage.notices.clear();
  return std::exchange(sum_ops_, 0);
}

std::optional<RescaleOp> RowStages::DropRescale() {
  std::vector<StepOp>& ops = stages_.back().ops;
  const auto* const rescale = ops.empty() ? nullptr : std::get_if<RescaleOp>(&ops.back());
  if (rescale == nullptr) return std::nullopt;
  const RescaleOp dropped = *rescale;
  ops.pop_back();
  return dropped;
}

}  // namespace baton::cuda
