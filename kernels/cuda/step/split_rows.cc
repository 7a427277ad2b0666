#include "kernels/cuda/step/split_rows.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/step/row_stages.h"

namespace baton::cuda {
namespace {

// From this number of rows on, GEMMs of half the rows take no longer in all than what they hide.
constexpr int64_t kMinRows = 2048;
// Halves and quarters of the rows fill whole tiles of the GEMMs.
constexpr int64_t kHalfMultiple = 256;
constexpr int64_t kQuarterMultiple = 128;

// A half of the rows. Rank r normalises quarter r of it.
struct Half {
  RowRange rows;
  std::array<RowRange, 2> quarters;
  int32_t parts_place;
  int32_t normed_place;
};

Half HalfOf(const RowRange& rows, int32_t first_place) {
  const int64_t quarter = RoundUp((rows.count + 1) / 2, kQuarterMultiple);
  return {.rows = rows,
          .quarters = {RowRange{rows.first, quarter},
                       RowRange{rows.first + quarter, rows.count - quarter}},
          .parts_place = first_place,
          .normed_place = first_place + 1};
}

Put PutOf(const Tensor& rows, std::byte* to) {
  return {rows.data, to, PackedBytes(rows)};
}

// Lets a pointer into some memory point to the same place of other memory.
struct Moved {
  const void* from;
  size_t bytes;
  void* to;

  template <class T>
  void Follow(T*& pointer) const {
    const auto* const at = reinterpret_cast<const std::byte*>(pointer);
    const auto* const begin = static_cast<const std::byte*>(from);
    if (at < begin || at >= begin + bytes) return;
    pointer = reinterpret_cast<T*>(static_cast<std::byte*>(to) + (at - begin));
  }
};

// Whether the residual may be out of date when this op runs. The ops between the last norm of a
// layer and the first sum of the next one read other tensors.
bool CanRunWithout(const Tensor& residual, const StepOp& op) {
  if (const auto* gather = std::get_if<GatherOp>(&op)) return gather->x.data != residual.data;
  return std::holds_alternative<NotifyOp>(op) || std::holds_alternative<AnglesOp>(op) ||
         std::holds_alternative<RopeOp>(op) || std::holds_alternative<AttentionOp>(op) ||
         std::holds_alternative<QuantizeOp>(op);
}

class Splitter {
 public:
  Splitter(int64_t rows, const RowSplit& split) : split_(split) {
    const int64_t half = RoundUp((rows + 1) / 2, kHalfMultiple);
    halves_ = {HalfOf({0, half}, 0), HalfOf({half, rows - half}, 2)};
  }

  bool Fits(const RowStages& stages) const;
  // Appends the stages of both halves.
  void Append(const RowStages& stages);
  // Appends an op that is not split, after the residual's quarters are exchanged if the op needs
  // them.
  void Append(StepOp op);
  std::vector<StepOp> Take() { return std::move(ops_); }

 private:
  using Stages = std::vector<RowStage>;
  using Ops = std::vector<StepOp>;

  const RowRange& mine(const Half& half) const {
    return half.quarters[static_cast<size_t>(split_.rank)];
  }
  const RowRange& others(const Half& half) const {
    return half.quarters[static_cast<size_t>(1 - split_.rank)];
  }
  std::byte* place(int32_t index) const { return split_.places[static_cast<size_t>(index)]; }

  void Exchange(ExchangeOp op) { ops_.emplace_back(std::move(op)); }
  void AppendStage(const Stages& stages, size_t index, size_t half);
  void AppendNorm(const Stages& stages, size_t index, size_t half);
  void AppendOps(std::span<const StepOp> ops,
                 const RowStage& stage,
                 const RowRange& rows,
                 const Half& half);
  Moved MovedRows(const RowStage& stage, const Half& half) const;
  Moved MovedScales(const RowStage& stage) const;
  void AddParts(const Half& half, NormOp& norm) const;
  void ExchangeResidual();

  const RowSplit& split_;
  std::array<Half, 2> halves_;
  std::array<bool, 2> sums_under_way_ = {};  // of each half
  Ops ops_;
  // Each rank has its own quarters of this residual, since the op at `divided_at_`.
  std::optional<Tensor> divided_;
  size_t divided_at_ = 0;
};

bool Splitter::Fits(const RowStages& stages) const {
  const auto fits = [&](const Tensor& rows) { return PackedBytes(rows) <= split_.place_bytes; };
  if (halves_[1].rows.first + halves_[1].rows.count > PeerSlots::kScales) return false;
  return std::ranges::all_of(stages.stages(), [&](const RowStage& stage) {
    if (!stage.norm) return true;
    const NormOp& norm = *stage.norm;
    return stage.ReadsOnlyNormed() && !HasGaps(norm.residual) && !HasGaps(norm.out) &&
           fits(Cut(norm.out, halves_[0].rows)) && fits(Cut(norm.residual, halves_[0].quarters[0]));
  });
}

void Splitter::Append(const RowStages& divided) {
  RowStages stages = divided;
  const Tensor& residual = stages.stages().back().norm->residual;
  if (divided_ && divided_->data != residual.data) ExchangeResidual();
  // Behind the halves, the op that reads the result of the last GEMM can rescale it.
  const std::optional<RescaleOp> last = stages.DropRescale();
  for (size_t index = 0; index < stages.stages().size(); ++index) {
    for (size_t half = 0; half < halves_.size(); ++half) {
      AppendStage(stages.stages(), index, half);
    }
  }
  if (last) {
    RescaleOp rescale = *last;
    MovedScales(stages.stages().back()).Follow(rescale.scales.rows);
    ops_.emplace_back(rescale);
  }
  divided_ = residual;
  divided_at_ = ops_.size();
}

void Splitter::Append(StepOp op) {
  if (divided_ && !CanRunWithout(*divided_, op)) ExchangeResidual();
  ops_.emplace_back(std::move(op));
}

// Appends a stage for one half. The norm of the other half stands between the stage's GEMMs, so
// that its part of the sum arrives, and its normalised rows leave, while GEMMs run.
void Splitter::AppendStage(const Stages& stages, size_t index, size_t half) {
  const RowStage& stage = stages[index];
  const Half& own = halves_[half];
  if (stage.norm && !stage.ops.empty()) Exchange(AwaitPutOp{own.normed_place});
  const size_t other = 1 - half;
  // The first half is one norm ahead of the second one.
  const auto norm = [&] { AppendNorm(stages, index + (half == 0 ? 0 : 1), other); };
  const auto gemms = std::ranges::count_if(
      stage.ops, [](const StepOp& op) { return std::holds_alternative<MatMulOp>(op); });
  const bool experts = std::ranges::any_of(
      stage.ops, [](const StepOp& op) { return std::holds_alternative<ExpertsOp>(op); });
  const std::span<const StepOp> ops = stage.ops;
  if (!std::exchange(sums_under_way_[other], false)) {
    AppendOps(ops, stage, own.rows, own);
  } else if (gemms == 1 && !experts) {
    AppendOps(ops, stage, own.quarters[0], own);
    norm();
    AppendOps(ops, stage, own.quarters[1], own);
  } else {
    // Experts of fewer rows would read their weights for fewer rows.
    size_t cut = ops.size();
    while (gemms > 1 && !std::holds_alternative<MatMulOp>(ops[--cut])) {
    }
    AppendOps(ops.first(cut), stage, own.rows, own);
    norm();
    AppendOps(ops.subspan(cut), stage, own.rows, own);
  }
  if (stage.sum.data == nullptr) return;
  PutOp put = {.place = own.parts_place};
  put.puts[0] = PutOf(Cut(stage.sum, others(own)), place(own.parts_place));
  Exchange(put);
  sums_under_way_[half] = true;
}

// Appends the norm of a stage for this rank's quarter of a half.
void Splitter::AppendNorm(const Stages& stages, size_t index, size_t half) {
  const RowStage& stage = stages[index];
  const Half& own = halves_[half];
  const RowRange& rows = mine(own);
  Exchange(AwaitPutOp{own.parts_place});
  // All ranks have written the KV of all rows before their parts of the second half.
  if (half == 1) {
    for (const NotifyOp& notify : stages[index - 1].notices) ops_.emplace_back(notify);
  }
  NormOp norm = std::get<NormOp>(Cut(StepOp(*stage.norm), rows));
  AddParts(own, norm);
  PutOp put = {.place = own.normed_place};
  const Moved moved = MovedRows(stage, own);
  if (stage.quantize) {
    QuantizeOp quantize = std::get<QuantizeOp>(Cut(StepOp(*stage.quantize), rows));
    moved.Follow(quantize.out.data);
    MovedScales(stage).Follow(quantize.out.scales);
    const Fp8Rows& out = quantize.out;
    auto* const scales = reinterpret_cast<std::byte*>(out.scales);
    put.puts = {Put{out.data, out.data, static_cast<size_t>(out.rows * out.cols)},
                Put{scales, scales, static_cast<size_t>(out.rows) * sizeof(float)}};
    ops_.emplace_back(norm);
    ops_.emplace_back(quantize);
  } else {
    moved.Follow(norm.out.data);
    put.puts[0] = PutOf(norm.out, norm.out.data);
    ops_.emplace_back(norm);
  }
  if (!stage.ops.empty()) Exchange(put);
}

// Appends ops of a stage for some rows of a half. They read the normalised rows of both ranks.
void Splitter::AppendOps(std::span<const StepOp> ops,
                         const RowStage& stage,
                         const RowRange& rows,
                         const Half& half) {
  for (const StepOp& op : ops) {
    ops_.push_back(Cut(op, rows));
    if (!stage.norm) continue;
    const Moved moved = MovedRows(stage, half);
    const Moved scales = MovedScales(stage);
    std::visit(Overloaded{[&](MatMulOp& c) {
                            moved.Follow(c.problem.x);
                            scales.Follow(c.problem.x_scales);
                          },
                          [&](ExpertsOp& c) { moved.Follow(c.x.data); },
                          [&](RescaleOp& c) { scales.Follow(c.scales.rows); },
                          [](auto& /*c*/) {}},
               ops_.back());
  }
}

// The half's normalised rows are in its place.
Moved Splitter::MovedRows(const RowStage& stage, const Half& half) const {
  if (stage.quantize) {
    const Fp8Rows rows = Cut(stage.quantize->out, half.rows);
    return {rows.data, static_cast<size_t>(rows.rows * rows.cols), place(half.normed_place)};
  }
  const Tensor rows = Cut(stage.norm->out, half.rows);
  return {rows.data, PackedBytes(rows), place(half.normed_place)};
}

Moved Splitter::MovedScales(const RowStage& stage) const {
  if (!stage.quantize) return {nullptr, 0, nullptr};
  const Fp8Rows& rows = stage.quantize->out;
  return {rows.scales, static_cast<size_t>(rows.rows) * sizeof(float), split_.scales};
}

// Lets the norm add up this rank's part and the one that it received, by rank.
void Splitter::AddParts(const Half& half, NormOp& norm) const {
  std::byte* const received = place(half.parts_place);
  const std::byte* const second = split_.rank == 0 ? received : norm.delta.data;
  if (split_.rank != 0) norm.delta.data = received;
  norm.delta_parts = 2;
  norm.delta_part = (second - norm.delta.data) / static_cast<int64_t>(ShapeOf(DType::kBF16).bytes);
}

// The quarters leave behind the last split op, and are awaited here. They use the places whose rows
// have been read by then, those of the second half.
void Splitter::ExchangeResidual() {
  const auto at = ops_.begin() + static_cast<std::ptrdiff_t>(divided_at_);
  const std::array<int32_t, 2> through = {halves_[1].parts_place, halves_[1].normed_place};
  Ops puts;
  for (size_t half = 0; half < halves_.size(); ++half) {
    PutOp put = {.place = through[half]};
    put.puts[0] = PutOf(Cut(*divided_, mine(halves_[half])), place(through[half]));
    puts.emplace_back(ExchangeOp(put));
  }
  ops_.insert(at, puts.begin(), puts.end());
  for (size_t half = 0; half < halves_.size(); ++half) {
    Exchange(AwaitPutOp{.place = through[half], .to = Cut(*divided_, others(halves_[half]))});
  }
  divided_.reset();
}

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
  split.scales = ranks.peers()->scales();
  return split;
}

void SplitRows(std::vector<StepOp>& ops, int64_t rows, const RowSplit& split) {
  if (rows < kMinRows || split.place_bytes == 0) return;
  Splitter splitter(rows, split);
  for (size_t at = 0; at < ops.size();) {
    RowStages stages(rows);
    size_t end = at;
    // Attention can write the operand of the first GEMM in FP8 itself, if the conversion is not
    // split.
    const bool whole = std::holds_alternative<QuantizeOp>(ops[at]);
    while (!whole && end < ops.size() && stages.Take(ops[end])) ++end;
    if (stages.complete() && splitter.Fits(stages)) {
      splitter.Append(stages);
    } else {
      end = std::max(end, at + 1);
      for (size_t i = at; i < end; ++i) splitter.Append(std::move(ops[i]));
    }
    at = end;
  }
  ops = splitter.Take();
  NumberHalves(ops);
}

}  // namespace baton::cuda
