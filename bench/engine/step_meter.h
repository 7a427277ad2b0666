#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/engine/issue_times.h"
#include "common/base/clock.h"
#include "common/engine/executor.h"
#include "tests/fakes/forwarding_executor.h"

namespace baton {

// Counts the steps that an engine has under way in another executor. In a group, it also notes when
// its rank issues each step. One thread, as Executor.
class StepMeter final : public ForwardingExecutor {
 public:
  // `executor` and `times` outlive the object. `times` is null outside a group.
  StepMeter(Executor& executor, IssueTimes* times, int rank)
      : ForwardingExecutor(executor), times_(times), rank_(rank) {}

  // Of the steps that only decode: how many steps were under way, the step itself included, when
  // each was issued, on average; and how many sequences each decoded. 0: there was no such step.
  double decodes_under_way() const { return PerDecode(decodes_under_way_); }
  double rows_of_decode() const { return PerDecode(decode_rows_); }
  // The same of the steps with a part of a prompt.
  double prompts_under_way() const {
    return prompts_ == 0 ? 0 : static_cast<double>(prompts_under_way_) / prompts_;
  }

  // Microseconds from the time when the leader began to hand on a step that only decodes until the
  // last other rank had issued it to its device.
  std::vector<double> DecodeLags() const {
    std::vector<double> lags;
    for (const uint64_t step : decode_steps_) {
      if (const auto lag = times_->LagOf(step)) lags.push_back(ToSeconds(*lag) * 1e6);
    }
    return lags;
  }

  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    const bool decodes = input.tokens.size() == input.sequences.size();
    if (times_ != nullptr && rank_ == 0) {
      if (decodes) decode_steps_.push_back(times_->steps(0));
      times_->Add(0, SteadyClock().Now());
    }
    Status issued = ForwardingExecutor::Issue(input, sampling, out, watch);
    if (!issued.ok()) return issued;
    if (times_ != nullptr && rank_ > 0) times_->Add(rank_, SteadyClock().Now());
    ++under_way_;
    ++(decodes ? decodes_ : prompts_);
    (decodes ? decodes_under_way_ : prompts_under_way_) += under_way_;
    if (decodes) decode_rows_ += static_cast<int64_t>(input.tokens.size());
    return issued;
  }
  Status Await() override {
    --under_way_;
    return ForwardingExecutor::Await();
  }

 private:
  double PerDecode(int64_t sum) const {
    return decodes_ == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(decodes_);
  }

  IssueTimes* const times_;
  const int rank_;
  std::vector<uint64_t> decode_steps_;  // on rank 0, when there are times
  int64_t under_way_ = 0;
  int64_t decodes_ = 0;            // steps
  int64_t decodes_under_way_ = 0;  // the sum over these steps
  int64_t decode_rows_ = 0;        // the sum over these steps
  int64_t prompts_ = 0;
  int64_t prompts_under_way_ = 0;
};

}  // namespace baton
