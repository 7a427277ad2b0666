#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/cuda/exchange/exchange_watch.h"
#include "kernels/cuda/exchange/nccl_communicator.h"
#include "kernels/cuda/exchange/peer_exchange.h"
#include "kernels/cuda/exchange/stage_slots.h"
#include "kernels/exchange.h"

namespace baton::cuda {

// Runs the exchanges of a step on the stream of the step. Ranks that can access each other's memory
// exchange through it; other ranks exchange through NCCL. One thread, except watch().
class GroupExchange final {
 public:
  // Connects the ranks of `groups` for `device`, the current one. `groups` must outlive the result.
  // If `stage_slots` is false, stages use NCCL even if they can access each other's memory (for
  // tests). Errors: those of NcclCommunicator::Create.
  static StatusOr<std::unique_ptr<GroupExchange>> Create(const RankGroups& groups,
                                                         const DeviceProperties& device,
                                                         bool stage_slots = true);

  const RankPlace& place() const { return place_; }
  // Null when the tensor ranks cannot access each other's memory.
  const PeerExchange* peers() const { return peers_.get(); }
  // PeerExchange::slot_bytes; 0 without peers().
  size_t slot_bytes() const { return peers_ == nullptr ? 0 : peers_->slot_bytes(); }
  // 0 when the stages of a tensor rank cannot access each other's memory.
  size_t stage_slot_bytes() const { return stages_ == nullptr ? 0 : StageSlots::kSlotBytes; }
  // How the ranks exchange; if they use NCCL, also why.
  std::string description() const;
  // Issues `op`. A graph can capture it.
  Status Launch(const ExchangeOp& op, cudaStream_t stream);
  // Called on the first stage: waits until a message of the last stage is in a slot, or the first
  // part of a message that takes several slots. Receive must not have been called for this message.
  // `stream` must be idle. Errors: the reason why the exchanges were aborted.
  Status AwaitMessage(cudaStream_t stream) const;
  // The watchdog, which aborts exchanges that cannot end.
  ExchangeWatch& watch() { return *watch_; }
  const ExchangeWatch& watch() const { return *watch_; }

 private:
  explicit GroupExchange(const RankGroups& groups) : groups_(groups), place_(PlaceIn(groups)) {}
  Status Connect(const DeviceProperties& device, bool stage_slots);
  Status ConnectStages(bool with_slots);
  Status CheckGroup() const;
  void Abort() const;
  Status Run(const ReduceOp& op, cudaStream_t stream);
  Status Run(const PutOp& op, cudaStream_t stream) const;
  Status Run(const AwaitPutOp& op, cudaStream_t stream) const;
  Status Run(const GatherColumnsOp& op, cudaStream_t stream);
  Status Run(const BarrierOp& op, cudaStream_t stream);
  Status Run(const StageOp& op, cudaStream_t stream);
  Status Run(const ShareTokensOp& op, cudaStream_t stream);
  Status ReduceTwoShot(const ReduceOp& op, cudaStream_t stream);

  const RankGroups groups_;
  const RankPlace place_;
  const SteadyClock clock_;
  std::unique_ptr<NcclCommunicator> tensor_;
  std::unique_ptr<NcclCommunicator> pipeline_;
  std::unique_ptr<PeerExchange> peers_;
  std::unique_ptr<StageSlots> stages_;
  Status why_nccl_;  // the first reason; OK when all ranks exchange through each other's memory
  std::unique_ptr<ExchangeWatch> watch_;
  std::vector<NcclCommunicator::Transfer> transfers_;  // reused by each op
};

}  // namespace baton::cuda
