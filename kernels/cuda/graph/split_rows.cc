#include "kernels/cuda/graph/split_rows.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "common/base/overloaded.h"
#include "kernels/cuda/graph/row_stages.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/rows/norm.h"

namespace baton::cuda {
namespace {

// From this number of rows for each rank on, GEMMs of half the rows take no longer in all than what
// they hide.
constexpr int64_t kMinRowsPerRank = 1024;
// Halves of the rows, and the pieces of a half for which a single GEMM runs, fill whole tiles.
constexpr int64_t kHalfMultiple = 256;
constexpr int64_t kPieceMultiple = 128;

// The copies after an experts op overlap with no GEMM (AppendStage). They take longer with more
// ranks.
constexpr int32_t kMaxRanksWithExperts = 2;

bool HasExperts(const RowStage& stage) {
  return std::ranges::any_of(
      stage.ops, [](const StepOp& op) { return std::holds_alternative<ExpertsOp>(op); });
}

// A half of the rows.
struct Half {
  RowRange rows;
  std::array<RowRange, 2> pieces;
  std::vector<RowRange> slices;  // by the rank that normalises them
  int32_t parts_buffer;
  int32_t normed_buffer;
};

Half HalfOf(const RowRange& rows, int32_t ranks, int32_t first_buffer) {
  const int64_t piece = RoundUp((rows.count + 1) / 2, kPieceMultiple);
  Half half = {
      .rows = rows,
      .pieces = {RowRange{rows.first, piece}, RowRange{rows.first + piece, rows.count - piece}},
      .slices = {},
      .parts_buffer = first_buffer,
      .normed_buffer = first_buffer + 1};
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int64_t first = rows.count * rank / ranks;
    half.slices.push_back({rows.first + first, rows.count * (rank + 1) / ranks - first});
  }
  return half;
}

// Lets a pointer into some memory point to the same place of other memory.
struct Moved {
  const void* from = nullptr;
  size_t bytes = 0;
  void* to = nullptr;

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
  if (const auto* exchange = std::get_if<ExchangeOp>(&op)) {
    const auto* const columns = std::get_if<GatherColumnsOp>(exchange);
    return columns != nullptr && columns->whole.data != residual.data;
  }
  return std::holds_alternative<NotifyOp>(op) || std::holds_alternative<AnglesOp>(op) ||
         std::holds_alternative<RopeOp>(op) || std::holds_alternative<AttentionOp>(op) ||
         std::holds_alternative<QuantizeOp>(op) || std::holds_alternative<LatentOp>(op) ||
         std::holds_alternative<RecurrentOp>(op);
}

class Splitter {
 public:
  Splitter(int64_t rows, const RowSplit& split) : split_(split) {
    const int64_t half = RoundUp((rows + 1) / 2, kHalfMultiple);
    halves_ = {HalfOf({0, half}, split.ranks, 0), HalfOf({half, rows - half}, split.ranks, 2)};
  }

  bool Fits(const RowStages& stages) const;
  // Appends the stages of both halves.
  void Append(RowStages stages);
  // Appends an op that is not split, after the residual's slices are exchanged if the op needs
  // them.
  void Append(StepOp op);
  std::vector<StepOp> Take() { return std::move(ops_); }

 private:
  using Stages = std::vector<RowStage>;
  using Ops = std::vector<StepOp>;

  const RowRange& slice(const Half& half, int32_t rank) const {
    return half.slices[static_cast<size_t>(rank)];
  }
  const RowRange& mine(const Half& half) const { return slice(half, split_.rank); }
  std::byte* put_buffer(int32_t index) const {
    return split_.put_buffers[static_cast<size_t>(index)];
  }
  // The other ranks, in different orders, so that not all send to one.
  template <class F>
  void ForOthers(const F& call) const {
    for (int32_t i = 1; i < split_.ranks; ++i) call((split_.rank + i) % split_.ranks);
  }

  void Exchange(ExchangeOp op) { ops_.emplace_back(std::move(op)); }
  void AppendStage(const Stages& stages, size_t index, size_t half);
  void AppendNorm(const Stages& stages, size_t index, size_t half);
  void AppendOps(std::span<const StepOp> ops,
                 const RowStage& stage,
                 const RowRange& rows,
                 const Half& half);
  void PutToAll(PutOp& put, const ByteCopy& copy) const;
  Moved MovedRows(const RowStage& stage, const Half& half) const;
  Moved MovedScales(const RowStage& stage) const;
  // What this rank has of a stage's sum, for some rows. Columns that others gather are packed at
  // the start of the sum.
  Tensor PartOf(const RowStage& stage, const RowRange& rows) const;
  // The bytes that `receiver` gets from the ranks before `sender` for its slice of a sum.
  size_t BytesBefore(const RowStage& stage,
                     const Half& half,
                     int32_t sender,
                     int32_t receiver) const;
  void Pack(const RowStage& stage, const RowRange& rows, StepOp& op) const;
  void AddParts(const RowStage& stage, const Half& half, NormOp& norm) const;
  void ExchangeResidual();

  const RowSplit& split_;
  std::array<Half, 2> halves_;
  std::array<bool, 2> sums_in_flight_ = {};  // of each half
  Ops ops_;
  // Each rank has its own slices of this residual, since the op at `divided_at_`.
  std::optional<Tensor> divided_;
  size_t divided_at_ = 0;
};

// The first half is the larger one, and the last slice the largest.
bool Splitter::Fits(const RowStages& stages) const {
  if (halves_[1].rows.first + halves_[1].rows.count > PeerSlots::kMaxScales) return false;
  // The first stage has a sum.
  const bool gathers = !stages.stages().front().ends.empty();
  if (std::ranges::any_of(stages.stages(), HasExperts) &&
      (gathers || split_.ranks > kMaxRanksWithExperts)) {
    return false;
  }
  const auto fits = [&](const Tensor& rows) {
    return PackedBytes(rows) <= split_.put_buffer_bytes;
  };
  const int64_t slice_rows = halves_[0].slices.back().count;
  return std::ranges::all_of(stages.stages(), [&](const RowStage& stage) {
    // A norm reads whole vectors, and knows by the first end that there are columns.
    const auto is_odd = [](int64_t end) { return end == 0 || end % 8 != 0; };
    if (std::ranges::any_of(stage.ends, is_odd)) return false;
    if (stage.sum.data != nullptr && stage.ends.empty() == gathers) return false;
    if (!stage.norm) return true;
    const NormOp& norm = *stage.norm;
    if (gathers && !CanComputeInput(norm)) return false;
    return stage.ReadsOnlyNormed() && !HasGaps(norm.residual) && !HasGaps(norm.out) &&
           fits(Cut(norm.out, halves_[0].rows)) &&
           fits(Cut(norm.residual, {0, slice_rows * (split_.ranks - 1)}));
  });
}

void Splitter::Append(RowStages stages) {
  const Tensor& residual = stages.stages().back().norm->residual;
  if (divided_ && divided_->data != residual.data) ExchangeResidual();
  // After the halves, the op that reads the result of the last GEMM can rescale it. No other op
  // may come between them (FuseOps).
  const std::optional<RescaleOp> last = stages.DropRescale();
  for (size_t index = 0; index < stages.stages().size(); ++index) {
    for (size_t half = 0; half < halves_.size(); ++half) {
      AppendStage(stages.stages(), index, half);
    }
  }
  divided_ = residual;
  divided_at_ = ops_.size();
  if (last) {
    RescaleOp rescale = *last;
    MovedScales(stages.stages().back()).Follow(rescale.scales.rows);
    ops_.emplace_back(rescale);
  }
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
  if (stage.norm && !stage.ops.empty()) Exchange(AwaitPutOp{.put_buffer = own.normed_buffer});
  const size_t other = 1 - half;
  // The first half is one norm ahead of the second one.
  const auto norm = [&] { AppendNorm(stages, index + (half == 0 ? 0 : 1), other); };
  const auto gemms = std::ranges::count_if(
      stage.ops, [](const StepOp& op) { return std::holds_alternative<MatMulOp>(op); });
  const std::span<const StepOp> ops = stage.ops;
  if (!std::exchange(sums_in_flight_[other], false)) {
    AppendOps(ops, stage, own.rows, own);
  } else if (gemms == 1 && !HasExperts(stage)) {
    AppendOps(ops, stage, own.pieces[0], own);
    norm();
    AppendOps(ops, stage, own.pieces[1], own);
  } else {
    // Experts are not divided, because each piece would read all of their weights.
    size_t cut = ops.size();
    while (gemms > 1 && !std::holds_alternative<MatMulOp>(ops[--cut])) {
    }
    AppendOps(ops.first(cut), stage, own.rows, own);
    norm();
    AppendOps(ops.subspan(cut), stage, own.rows, own);
  }
  if (stage.sum.data == nullptr) return;
  PutOp put = {.puts = {}, .put_buffer = own.parts_buffer};
  ForOthers([&](int32_t rank) {
    const Tensor part = PartOf(stage, slice(own, rank));
    std::byte* const to = put_buffer(own.parts_buffer) + BytesBefore(stage, own, split_.rank, rank);
    put.puts.push_back({{part.data, to, PackedBytes(part)}, rank});
  });
  Exchange(std::move(put));
  sums_in_flight_[half] = true;
}

// Appends the norm of a stage for this rank's slice of a half.
void Splitter::AppendNorm(const Stages& stages, size_t index, size_t half) {
  const RowStage& stage = stages[index];
  const Half& own = halves_[half];
  const RowRange& rows = mine(own);
  Exchange(AwaitPutOp{.put_buffer = own.parts_buffer});
  // Receiving the second half's parts proves that every rank has written the KV of all rows.
  if (half == 1) {
    for (const NotifyOp& notify : stages[index - 1].notices) ops_.emplace_back(notify);
  }
  NormOp norm = std::get<NormOp>(Cut(StepOp(*stage.norm), rows));
  AddParts(stages[index - 1], own, norm);
  PutOp put = {.puts = {}, .put_buffer = own.normed_buffer};
  const Moved moved = MovedRows(stage, own);
  if (stage.quantize) {
    QuantizeOp quantize = std::get<QuantizeOp>(Cut(StepOp(*stage.quantize), rows));
    moved.Follow(quantize.out.data);
    MovedScales(stage).Follow(quantize.out.scales);
    const Fp8Rows& out = quantize.out;
    auto* const scales = reinterpret_cast<std::byte*>(out.scales);
    PutToAll(put, {out.data, out.data, static_cast<size_t>(out.rows * out.cols)});
    PutToAll(put, {scales, scales, static_cast<size_t>(out.rows) * sizeof(float)});
    ops_.emplace_back(norm);
    ops_.emplace_back(quantize);
  } else {
    moved.Follow(norm.out.data);
    PutToAll(put, {norm.out.data, norm.out.data, PackedBytes(norm.out)});
    ops_.emplace_back(norm);
  }
  if (!stage.ops.empty()) Exchange(std::move(put));
}

// Appends ops of a stage for some rows of a half. They read the normalised rows of all ranks.
void Splitter::AppendOps(std::span<const StepOp> ops,
                         const RowStage& stage,
                         const RowRange& rows,
                         const Half& half) {
  const Moved moved = MovedRows(stage, half);
  const Moved scales = MovedScales(stage);
  for (const StepOp& op : ops) {
    ops_.push_back(Cut(op, rows));
    if (!stage.ends.empty()) Pack(stage, rows, ops_.back());
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

// The half's normalised rows are in its put buffer.
Moved Splitter::MovedRows(const RowStage& stage, const Half& half) const {
  if (!stage.norm) return {};
  if (stage.quantize) {
    const Fp8Rows rows = Cut(stage.quantize->out, half.rows);
    return {rows.data, static_cast<size_t>(rows.rows * rows.cols), put_buffer(half.normed_buffer)};
  }
  const Tensor rows = Cut(stage.norm->out, half.rows);
  return {rows.data, PackedBytes(rows), put_buffer(half.normed_buffer)};
}

Moved Splitter::MovedScales(const RowStage& stage) const {
  if (!stage.quantize) return {};
  const Fp8Rows& rows = stage.quantize->out;
  return {rows.scales, static_cast<size_t>(rows.rows) * sizeof(float), split_.scales};
}

void Splitter::PutToAll(PutOp& put, const ByteCopy& copy) const {
  ForOthers([&](int32_t rank) { put.puts.push_back({copy, rank}); });
}

Tensor Splitter::PartOf(const RowStage& stage, const RowRange& rows) const {
  Tensor part = stage.sum;
  part.cols = part.stride = stage.columns(split_.rank);
  return Cut(part, rows);
}

size_t Splitter::BytesBefore(const RowStage& stage,
                             const Half& half,
                             int32_t sender,
                             int32_t receiver) const {
  int64_t columns = 0;
  for (int32_t rank = 0; rank < sender; ++rank) {
    columns += rank == receiver ? 0 : stage.columns(rank);
  }
  return static_cast<size_t>(slice(half, receiver).count * columns) *
         ShapeOf(stage.sum.dtype).bytes;
}

// Lets an op that writes this rank's columns of the sum pack them.
void Splitter::Pack(const RowStage& stage, const RowRange& rows, StepOp& op) const {
  const Tensor columns =
      stage.sum.Columns(stage.first_column(split_.rank), stage.columns(split_.rank));
  const std::byte* const from = Cut(columns, rows).data;
  const Tensor part = PartOf(stage, rows);
  if (auto* const multiply = std::get_if<MatMulOp>(&op)) {
    if (multiply->problem.out != from) return;
    multiply->problem.out = part.data;
    multiply->problem.out_stride = part.stride;
  } else if (auto* const rescale = std::get_if<RescaleOp>(&op)) {
    if (rescale->x.data == from) rescale->x = part;
  }
}

// Lets the norm read this rank's part and those that it received, by rank.
void Splitter::AddParts(const RowStage& stage, const Half& half, NormOp& norm) const {
  const Tensor own = PartOf(stage, mine(half));
  std::array<int64_t, kMaxPeerRanks> offsets = {};
  for (int32_t rank = 0; rank < split_.ranks; ++rank) {
    if (rank == split_.rank) continue;
    const std::byte* const received =
        put_buffer(half.parts_buffer) + BytesBefore(stage, half, rank, split_.rank);
    offsets[static_cast<size_t>(rank)] =
        (received - own.data) / static_cast<int64_t>(ShapeOf(own.dtype).bytes);
  }
  if (stage.ends.empty()) {
    norm.input = PartsInput{own, split_.ranks, offsets};
    return;
  }
  PackedColumnsInput columns = {.mine = own, .offsets = offsets};
  for (size_t rank = 0; rank < stage.ends.size(); ++rank) {
    columns.ends[rank] = static_cast<int32_t>(stage.ends[rank]);
  }
  norm.input = columns;
}

// Sends the residual's slices after the last split op, and waits for them here or before the next
// exchange. Uses the put buffers of the second half, whose rows have been read by then.
void Splitter::ExchangeResidual() {
  const std::array<int32_t, 2> through = {halves_[1].parts_buffer, halves_[1].normed_buffer};
  Ops puts;
  Ops awaits;
  for (size_t i = 0; i < halves_.size(); ++i) {
    const Half& half = halves_[i];
    const Tensor own = Cut(*divided_, mine(half));
    PutOp put = {.puts = {}, .put_buffer = through[i]};
    AwaitPutOp await = {.put_buffer = through[i], .copies = {}};
    // The slices are packed by rank, without the receiver's own slice.
    ForOthers([&](int32_t rank) {
      int64_t before = 0;
      for (int32_t other = 0; other < split_.rank; ++other) {
        before += other == rank ? 0 : slice(half, other).count;
      }
      std::byte* const to = put_buffer(through[i]) + PackedBytes(divided_->Rows(0, before));
      put.puts.push_back({{own.data, to, PackedBytes(own)}, rank});
    });
    const std::byte* received = put_buffer(through[i]);
    for (int32_t rank = 0; rank < split_.ranks; ++rank) {
      if (rank == split_.rank) continue;
      const Tensor other = Cut(*divided_, slice(half, rank));
      await.copies.push_back({received, other.data, PackedBytes(other)});
      received += PackedBytes(other);
    }
    puts.emplace_back(ExchangeOp(std::move(put)));
    awaits.emplace_back(ExchangeOp(std::move(await)));
  }
  const auto begin = ops_.begin() + static_cast<std::ptrdiff_t>(divided_at_);
  const auto next = std::find_if(
      begin, ops_.end(), [](const StepOp& op) { return std::holds_alternative<ExchangeOp>(op); });
  ops_.insert(next, awaits.begin(), awaits.end());
  ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(divided_at_), puts.begin(), puts.end());
  divided_.reset();
}

// The exchanges of a step alternate between the two slot buffers. Adds a barrier if their count is
// odd, so that each step starts with buffer 0.
void NumberSlotBuffers(std::vector<StepOp>& ops) {
  int32_t next = 0;
  for (StepOp& op : ops) {
    auto* const exchange = std::get_if<ExchangeOp>(&op);
    if (exchange == nullptr) continue;
    std::visit(
        [&](auto& one) {
          if constexpr (requires { one.slot_buffer; }) {
            if (one.slot_buffer != kThroughNccl) one.slot_buffer = std::exchange(next, 1 - next);
          }
        },
        *exchange);
  }
  if (next != 0) ops.emplace_back(ExchangeOp(BarrierOp{.slot_buffer = next}));
}

}  // namespace

RowSplit RowSplit::Between(const GroupExchange& ranks) {
  RowSplit split;
  if (ranks.peers() == nullptr) return split;
  split.rank = ranks.place().tensor_rank;
  split.ranks = ranks.place().tensor_parallel;
  split.put_buffer_bytes = ranks.peers()->put_buffer_bytes();
  for (size_t i = 0; i < split.put_buffers.size(); ++i) {
    split.put_buffers[i] = ranks.peers()->put_buffer(static_cast<int>(i));
  }
  split.scales = ranks.peers()->scales();
  return split;
}

void SplitRows(std::vector<StepOp>& ops, int64_t rows, const RowSplit& split) {
  if (split.put_buffer_bytes == 0 || rows < kMinRowsPerRank * split.ranks) return;
  const OpGraph graph(std::move(ops));
  Splitter splitter(rows, split);
  for (size_t at = 0; at < graph.size();) {
    RowStages stages(graph, rows);
    size_t end = at;
    // Attention can write the operand of the first GEMM in FP8 itself, if the conversion is not
    // split.
    const bool whole = std::holds_alternative<QuantizeOp>(graph.op(at));
    while (!whole && end < graph.size() && stages.Take(end)) ++end;
    end -= stages.DropSum();
    if (stages.complete() && splitter.Fits(stages)) {
      splitter.Append(std::move(stages));
    } else {
      end = std::max(end, at + 1);
      for (size_t i = at; i < end; ++i) splitter.Append(graph.op(i));
    }
    at = end;
  }
  ops = splitter.Take();
  NumberSlotBuffers(ops);
}

}  // namespace baton::cuda
