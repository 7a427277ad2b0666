#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "tests/fakes/forwarding_ops.h"

namespace baton {

// Ops that sample as late as they may, as a GPU does on the first stage of a pipeline: in the
// AwaitStep of the step. For the steps of an executor that samples after IssueStep.
class LateSampling final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  Status AwaitStep() override {
    if (late_.has_value()) ForwardingOps::Sample(late_->logits, late_->rows, late_->out);
    late_.reset();
    if (late_rows_.has_value()) ForwardingOps::CopyRows(late_rows_->first, late_rows_->second);
    late_rows_.reset();
    return ForwardingOps::AwaitStep();
  }
  void Sample(const Tensor& logits,
              std::span<const SamplingRow> rows,
              std::span<SampledToken> out) override {
    late_ = {logits, rows, out};
  }
  void CopyRows(const Tensor& x, std::span<const std::span<float>> rows) override {
    late_rows_ = {x, rows};
  }

 private:
  struct Late {
    Tensor logits;
    std::span<const SamplingRow> rows;
    std::span<SampledToken> out;
  };

  std::optional<Late> late_;  // of the oldest step under way
  std::optional<std::pair<Tensor, std::span<const std::span<float>>>> late_rows_;
};

}  // namespace baton
