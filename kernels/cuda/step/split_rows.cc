#include "kernels/cuda/step/split_rows.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/primitives/rounding.h"

namespace baton::cuda {
namespace {

// From this number of rows on, GEMMs of half the rows take no longer in all than what they hide.
constexpr int64_t kMinRows = 2048;
// A half of the rows fills whole tiles of the GEMMs.
constexpr int64_t kHalfMultiple = 256;

// Some of a step's rows.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

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

OutputScales Cut(OutputScales scales, const RowRange& range) {
  if (scales.rows != nullptr) scales.rows += range.first;
  return scales;
}

// `op` for some of its rows.
template <class Op>
StepOp Part(Op op, const RowRange& range) {
  if constexpr (requires { op.problem; }) op.problem = RowsOf(op.problem, range.first, range.count);
  if constexpr (requires { op.x; }) op.x = Cut(op.x, range);
  if constexpr (requires { op.out; }) op.out = Cut(op.out, range);
  if constexpr (requires { op.scales; }) op.scales = Cut(op.scales, range);
  if constexpr (requires { op.gate_up; }) op.gate_up = Cut(op.gate_up, range);
  if constexpr (requires { op.residual; }) op.residual = Cut(op.residual, range);
  if constexpr (requires { op.delta; }) op.delta = Cut(op.delta, range);
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

// Ops that run one after the other for all rows. Behind the last stage there is no sum.
struct Stage {
  std::vector<StepOp> ops;
  Tensor sum;                     // is added up by the norm that begins the next stage
  std::vector<NotifyOp> notices;  // behind the sum
};

// Divides consecutive ops into stages.
class Stages {
 public:
  explicit Stages(int64_t rows) : rows_(rows), stages_(1) {}

  // Appends `op` if it belongs to these stages.
  bool Take(const StepOp& op) {
    Stage& stage = stages_.back();
    const bool sums = stage.sum.data != nullptr;
    if (const auto* notify = std::get_if<NotifyOp>(&op)) {
      if (sums) stage.notices.push_back(*notify);
      return sums;
    }
    if (const auto* exchange = std::get_if<ExchangeOp>(&op)) return TakeSum(*exchange);
    if (!IsOfRows(op, rows_)) return false;
    if (sums) {
      const auto* norm = std::get_if<NormOp>(&op);
      if (norm == nullptr || norm->delta.data != stage.sum.data || stage.sum.rows != rows_) {
        return false;
      }
      stages_.emplace_back();
    }
    stages_.back().ops.push_back(op);
    return true;
  }

  bool have_sums() const { return stages_.size() > 1; }
  // Whether every sum is followed by the norm that adds it up.
  bool complete() const { return stages_.back().sum.data == nullptr; }
  const std::vector<Stage>& stages() const { return stages_; }

 private:
  // A large sum is listed as the sums of several ranges of rows.
  bool TakeSum(const ExchangeOp& op) {
    const auto* reduce = std::get_if<ReduceOp>(&op);
    Stage& stage = stages_.back();
    if (reduce == nullptr || stage.ops.empty() || !stage.notices.empty() ||
        reduce->x.dtype != DType::kBF16 || reduce->x.stride != reduce->x.cols) {
      return false;
    }
    if (stage.sum.data == nullptr) {
      stage.sum = reduce->x;
      return true;
    }
    if (reduce->x.data != stage.sum.Rows(stage.sum.rows, 1).data) return false;
    stage.sum.rows += reduce->x.rows;
    return true;
  }

  const int64_t rows_;
  std::vector<Stage> stages_;
};

class Splitter {
 public:
  Splitter(int64_t rows, const RowSplit& split) : split_(split) {
    const int64_t half = RoundUp(rows / 2, kHalfMultiple);
    halves_ = {RowRange{0, half}, RowRange{half, rows - half}};
  }

  bool Fits(const std::vector<Stage>& stages) const {
    return std::ranges::all_of(stages, [&](const Stage& stage) {
      return stage.sum.data == nullptr ||
             PackedBytes(Cut(stage.sum, halves_[0])) <= split_.place_bytes;
    });
  }

  // Appends the stages of both halves to `ops`.
  void Append(const std::vector<Stage>& stages, std::vector<StepOp>& ops) {
    std::array<std::optional<CopyPartOp>, 2> before;  // what each half waits for
    for (size_t i = 0; i < stages.size(); ++i) {
      for (size_t half = 0; half < halves_.size(); ++half) {
        const std::optional<CopyPartOp> copied = std::exchange(before[half], std::nullopt);
        if (copied) ops.emplace_back(ExchangeOp(AwaitPartOp{copied->place}));
        if (i > 0 && half == 1) {
          for (const NotifyOp& notify : stages[i - 1].notices) ops.emplace_back(notify);
        }
        const size_t first = ops.size();
        for (const StepOp& op : stages[i].ops) {
          ops.push_back(std::visit([&](const auto& one) { return Part(one, halves_[half]); }, op));
        }
        if (copied) AddParts(*copied, std::get<NormOp>(ops[first]));
        if (stages[i].sum.data == nullptr) continue;
        before[half] = CopyPartOp{.part = Cut(stages[i].sum, halves_[half]), .place = next_place_};
        next_place_ = (next_place_ + 1) % PeerSlots::kPlaces;
        ops.emplace_back(ExchangeOp(*before[half]));
      }
    }
  }

 private:
  // Lets the norm add up this rank's part and the one that it received, by rank.
  void AddParts(const CopyPartOp& copied, NormOp& norm) const {
    std::byte* const received = split_.places[static_cast<size_t>(copied.place)];
    const std::byte* const second = split_.rank == 0 ? received : norm.delta.data;
    if (split_.rank != 0) norm.delta.data = received;
    norm.delta_parts = 2;
    norm.delta_part =
        (second - norm.delta.data) / static_cast<int64_t>(ShapeOf(DType::kBF16).bytes);
  }

  const RowSplit& split_;
  std::array<RowRange, 2> halves_;
  int32_t next_place_ = 0;
};

// The exchanges of a step through slots use the halves of the slots in turn, and equally often.
void NumberHalves(std::vector<StepOp>& ops) {
  int32_t half = 0;
  for (StepOp& op : ops) {
    auto* const exchange = std::get_if<ExchangeOp>(&op);
    if (exchange == nullptr) continue;
    std::visit(
        [&](auto& one) {
          if constexpr (requires { one.half; }) {
            if (one.half != kThroughNccl) one.half = std::exchange(half, 1 - half);
          }
        },
        *exchange);
  }
  if (half != 0) ops.emplace_back(ExchangeOp(BarrierOp{.half = half}));
}

}  // namespace

RowSplit RowSplit::Between(const GroupExchange& ranks) {
  RowSplit split;
  if (ranks.peers() == nullptr || ranks.peers()->place_bytes() == 0) return split;
  split.rank = ranks.place().tensor_rank;
  split.place_bytes = ranks.peers()->place_bytes();
  for (size_t i = 0; i < split.places.size(); ++i) {
    split.places[i] = ranks.peers()->place(static_cast<int>(i));
  }
  return split;
}

void SplitRows(std::vector<StepOp>& ops, int64_t rows, const RowSplit& split) {
  if (rows < kMinRows || split.place_bytes == 0) return;
  Splitter splitter(rows, split);
  std::vector<StepOp> result;
  for (size_t at = 0; at < ops.size();) {
    Stages stages(rows);
    size_t end = at;
    while (end < ops.size() && stages.Take(ops[end])) ++end;
    const bool splits = stages.have_sums() && stages.complete() && splitter.Fits(stages.stages());
    if (splits) {
      splitter.Append(stages.stages(), result);
    } else {
      end = std::max(end, at + 1);
      result.insert(result.end(),
                    std::make_move_iterator(ops.begin() + static_cast<std::ptrdiff_t>(at)),
                    std::make_move_iterator(ops.begin() + static_cast<std::ptrdiff_t>(end)));
    }
    at = end;
  }
  ops = std::move(result);
  NumberHalves(ops);
}

}  // namespace baton::cuda
