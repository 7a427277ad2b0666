#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/exchange.h"

namespace baton::cpu {

// Exchanges float32 activations in host memory, each at once. Keeps the first error of a step.
// Owned by CpuOps; one thread at a time.
class CpuExchange final : public Exchange {
 public:
  // The groups outlive this object.
  CpuExchange(const RankGroups& groups, ExchangeMode mode)
      : groups_(groups), place_(PlaceIn(groups)), mode_(mode) {}

  // Whether this rank is the only one of its group.
  bool alone() const { return place_ == RankPlace{}; }
  // Forgets the error of the step before.
  void Begin() { status_ = OkStatus(); }
  const Status& status() const { return status_; }
  bool failed() const { return !status_.ok(); }

  const RankPlace& place() const override { return place_; }
  std::string description() const override { return "through host memory"; }
  ExchangeMode mode() const override { return mode_; }
  std::optional<Duration> time_spent() const override { return time_spent_; }
  void AllGather(const Tensor& whole, std::span<const int64_t> ends) override;
  void GatherToFirst(const Tensor& whole, std::span<const int64_t> ends) override;
  void AllReduce(const Tensor& x) override;
  void Barrier() override;
  void SendToStage(const Tensor& x, int32_t stage) override;
  void ReceiveFromStage(const Tensor& x, int32_t stage) override;
  bool SendsAhead(size_t bytes) const override;

 private:
  // `ends`, the columns of `whole` at which the parts of the ranks end, in bytes.
  std::span<const size_t> BytesOf(const Tensor& whole, std::span<const int64_t> ends);
  // Calls `exchange` unless an exchange of this step has failed, and keeps its status and its time.
  template <class Call>
  void Run(const Call& exchange);
  // Calls `exchange` for the whole tensor at once, or row by row when its rows are not contiguous.
  void ForFloats(const Tensor& x, const std::function<Status(std::span<float>)>& exchange);

  const RankGroups groups_;
  const RankPlace place_;
  const ExchangeMode mode_;
  Status status_;
  Duration time_spent_{};
  std::vector<size_t> ends_;  // scratch
  std::vector<std::byte> marks_;
};

}  // namespace baton::cpu
