#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/graph/op_graph.h"

// Consecutive ops of a step that treat rows independently, divided where the parts of the ranks are
// added up, or their columns gathered (split_rows.h).
namespace baton::cuda {

// Some of a step's rows.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Parts of operands: the rows of `range`.
Tensor Cut(const Tensor& x, const RowRange& range);
Fp8Rows Cut(Fp8Rows x, const RowRange& range);
// An op that computes rows (RowStage::ops), for the rows of `range`.
StepOp Cut(const StepOp& op, const RowRange& range);

// Ops that run one after the other for all rows.
struct RowStage {
  std::optional<NormOp> norm;          // reads the sum of the stage before; the first has none
  std::optional<QuantizeOp> quantize;  // of the norm's result
  // Whether `quantize` is the only op that reads the norm's result.
  bool reads_only_fp8 = false;
  std::vector<StepOp> ops;
  Tensor sum;                     // of the parts of all ranks; the last stage has none
  std::vector<int64_t> ends;      // not empty: columns of `sum` instead, as GatherColumnsOp::ends
  std::vector<NotifyOp> notices;  // after the sum

  // Whether the stage's other ops read the norm's result in one form: in FP8 if it is quantized.
  bool ReadsOnlyNormed() const { return !quantize || reads_only_fp8; }
  // The columns of `sum` that a rank computes: all of them, or those that others gather.
  int64_t first_column(int32_t rank) const {
    return ends.empty() || rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1];
  }
  int64_t columns(int32_t rank) const {
    return ends.empty() ? sum.cols : ends[static_cast<size_t>(rank)] - first_column(rank);
  }
};

// Divides consecutive ops into stages.
class RowStages {
 public:
  // Of ops of `graph`, which must outlive the object.
  RowStages(const OpGraph& graph, int64_t rows) : graph_(graph), rows_(rows), stages_(1) {}

  // Appends op `at` of the graph, the one after the last op taken, if it belongs to these stages.
  bool Take(size_t at);
  // Removes the last sum if no norm has followed. Returns the number of its ops, the last ones
  // taken.
  size_t DropSum();
  // Removes the last op if it is a RescaleOp, and returns it.
  std::optional<RescaleOp> DropRescale();

  // Whether there are sums, and each is followed by the norm that adds it up.
  bool complete() const { return stages_.size() > 1 && stages_.back().sum.data == nullptr; }
  const std::vector<RowStage>& stages() const { return stages_; }

 private:
  bool TakeSum(size_t at, const Tensor& sum, const std::vector<int64_t>& ends);
  bool TakeNorm(size_t at, const NormOp& norm);
  bool TakeQuantize(size_t at, const QuantizeOp& quantize);

  const OpGraph& graph_;
  const int64_t rows_;
  std::vector<RowStage> stages_;
  std::vector<size_t> sums_;    // the exchanges of the last stage's sum
  std::optional<size_t> norm_;  // the norm of the last stage
  size_t sum_ops_ = 0;          // exchanges and notices after the last norm
};

}  // namespace baton::cuda
