#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/exchange.h"

namespace baton::cuda {

// Lists the exchanges of a step, and chooses how they run. Its choices depend on shapes alone, so
// that all ranks make the same. Owned by CudaOps; one thread.
class ListedExchange final : public Exchange {
 public:
  // The step that is listed.
  struct Step {
    std::function<Tensor(const Tensor&)> pad;   // as the step's other ops
    std::function<std::byte*(size_t)> scratch;  // device memory; null when there is none
    std::function<void(ExchangeOp)> add;
  };
  struct Options {
    RankPlace place;
    // kReduce: a rank multiplies by whole weights of its heads, so that activations are exchanged
    // twice in a layer, not four times.
    ExchangeMode mode = ExchangeMode::kReduce;
    size_t slot_bytes = 0;        // PeerExchange::part_bytes; 0 without slots
    size_t stage_slot_bytes = 0;  // StageSlots::kSlotBytes; 0 where stages exchange through NCCL
    std::string description = {};
  };

  ListedExchange(Options options, Step step)
      : options_(std::move(options)), step_(std::move(step)) {}

  // Called before the first op of a step.
  void BeginStep() { half_ = 0; }
  // Called after the last op: gives the `count` sampled tokens to the ranks that embed them, and
  // lets the step use the halves of the slots equally often, so that steps, which may be graphs,
  // can follow each other in any order.
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
  // NCCL's send ends when the other rank receives. Through slots, the leader receives the logits of
  // a step beside its own part of the next one, so that the last stage never waits for long.
  bool SendsAhead(size_t /*bytes*/) const override { return options_.stage_slot_bytes > 0; }

 private:
  bool has_slots() const { return options_.slot_bytes > 0; }
  // The half of the slots for the next exchange through them.
  int32_t NextHalf();
  // Lists the sum as exchanges through slots. Returns false when slots do not serve.
  bool ReduceThroughSlots(const Tensor& x);
  bool GatherThroughSlots(const GatherColumnsOp& whole);
  void Gather(const Tensor& whole, std::span<const int64_t> ends, bool to_all);
  void Stage(const Tensor& x, int32_t stage, bool send);

  const Options options_;
  const Step step_;
  int32_t half_ = 0;  // of the next exchange through slots
};

}  // namespace baton::cuda
