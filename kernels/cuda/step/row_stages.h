#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/step/step_ops.h"

// Consecutive ops of a step that treat rows independently, divided where the parts of the ranks are
// added up (split_rows.h).
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
  std::optional<NormOp> norm;          // adds up the sum of the stage before; the first has none
  std::optional<QuantizeOp> quantize;  // of the norm's result
  std::vector<StepOp> ops;
  Tensor sum;                     // added up by the next norm; the last stage has none
  std::vector<NotifyOp> notices;  // behind the sum

  // What the stage's other ops read: the norm's result, in FP8 if it is quantized.
  bool ReadsOnlyNormed() const;
};

// Divides consecutive ops into stages.
class RowStages {
 public:
  explicit RowStages(int64_t rows) : rows_(rows), stages_(1) {}

  // Appends `op` if it belongs to these stages.
  bool Take(const StepOp& op);
  // Removes the last op if it is a RescaleOp, and returns it.
  std::optional<RescaleOp> DropRescale();

  // Whether there are sums, and each is followed by the norm that adds it up.
  bool complete() const { return stages_.size() > 1 && stages_.back().sum.data == nullptr; }
  const std::vector<RowStage>& stages() const { return stages_; }

 private:
  bool TakeSum(const ExchangeOp& op);
  bool TakeNorm(const NormOp& norm);
  bool TakeQuantize(const QuantizeOp& quantize);

  const int64_t rows_;
  std::vector<RowStage> stages_;
};

}  // namespace baton::cuda
