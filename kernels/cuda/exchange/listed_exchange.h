#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/exchange.h"

namespace baton::cuda {

// Adds the exchanges of a step to the step's list of ops and chooses how each one runs. The choices
// depend on shapes alone, so that all ranks choose the same. Owned by CudaOps; one thread.
class ListedExchange final : public Exchange {
 public:
  // The step whose ops are being listed.
  struct Step {
    // Pads the rows of a tensor as for the step's other ops.
    std::function<Tensor(const Tensor&)> pad;
    // Allocates device memory for the step. Returns null when none is left.
    std::function<std::byte*(size_t)> scratch;
    // Appends an op to the list.
    std::function<void(ExchangeOp)> add;
  };
  struct Options {
    RankPlace place;
    // kReduce exchanges activations twice in a layer, kGather four times.
    ExchangeMode mode = ExchangeMode::kReduce;
    size_t slot_bytes = 0;        // PeerExchange::slot_bytes; 0 without slots
    size_t stage_slot_bytes = 0;  // StageSlots::kSlotBytes; 0 when stages use NCCL
    std::string description = {};
  };

  ListedExchange(Options options, Step step)
      : options_(std::move(options)), step_(std::move(step)) {}

  // Called before the first op of a step.
  void BeginStep() { slot_buffer_ = 0; }
  // Called after the last op. Broadcasts the `count` sampled tokens to the ranks that embed them.
  // Then adds a barrier if the step has used slot buffer 0 more often than slot buffer 1, so that
  // each step starts with slot buffer 0. Steps may be graphs and may run in any order.
  void EndStep(int32_t* tokens, int32_t count);

  const RankPlace& place() const override { return options_.place; }
  std::string description() const override { return options_.description; }
  ExchangeMode mode() const override { return options_.mode; }
  void AllGather(const Tensor& whole, std::span<const int64_t> ends) override;
  void GatherToFirst(const Tensor& whole, std::span<const int64_t> ends) override;
  void AllReduce(const Tensor& x) override;
  void Barrier() override;
  void SendToStage(const Tensor& x, int32_t stage) override;
  void ReceiveFromStage(const Tensor& x, int32_t stage) override;
  // With slots, a stage may send several messages before the receiver takes the first one. With
  // NCCL, a send ends only when the other rank receives.
  bool SendsAhead(size_t /*bytes*/) const override { return options_.stage_slot_bytes > 0; }

 private:
  bool has_slots() const { return options_.slot_bytes > 0; }
  // Returns the slot buffer for the next exchange and switches to the other slot buffer.
  int32_t NextSlotBuffer();
  // Lists the sum as exchanges through slots. Returns false if slots cannot be used for `x`.
  bool ReduceThroughSlots(const Tensor& x);
  bool GatherThroughSlots(const GatherColumnsOp& whole);
  void Gather(const Tensor& whole, std::span<const int64_t> ends, bool to_all);
  void Stage(const Tensor& x, int32_t stage, bool send);

  const Options options_;
  const Step step_;
  int32_t slot_buffer_ = 0;  // for the next exchange through slots
};

}  // namespace baton::cuda
