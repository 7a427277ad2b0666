#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/cuda/exchange/peer_puts.h"
#include "kernels/cuda/exchange/peer_slots.h"

namespace baton::cuda {

// Runs the exchanges of tensor ranks through their slots, by kernels on the stream of the step. One
// thread, except Abort.
class PeerExchange final {
 public:
  // Errors: those of PeerSlots::Create.
  static StatusOr<std::unique_ptr<PeerExchange>> Create(Collective& host,
                                                        const DeviceProperties& device);

  // The most bytes that a rank sends to another rank in an exchange.
  size_t part_bytes() const { return slots_->part_bytes(); }
  // What a kernel that pushes and adds the parts itself needs, in place of a ReduceOp.
  PeerParts Parts(int half) const { return slots_->Parts(half); }
  PeerTargets Targets(int half) const { return InPushOrder(slots_->Targets(half), Parts(half)); }

  // Where this rank receives what PutOp sends, and the bytes of each place.
  std::byte* place(int index) const { return slots_->Place(index); }
  float* scales() const { return slots_->Scales(); }
  size_t place_bytes() const { return slots_->place_bytes(); }

  // Issue ops with a half of the slots. A graph can capture them.
  cudaError_t Launch(const ReduceOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const PutOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const AwaitPutOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const GatherColumnsOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const BarrierOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const ShareTokensOp& op, cudaStream_t stream) const;
  // Ends the exchanges under way on this rank's device. Any thread.
  void Abort() { slots_->Abort(); }

 private:
  PeerExchange(std::unique_ptr<PeerSlots> slots,
               std::unique_ptr<PeerPuts> puts,
               const Collective& host,
               int sm_count)
      : slots_(std::move(slots)),
        puts_(std::move(puts)),
        rank_(host.rank()),
        ranks_(host.size()),
        sm_count_(sm_count) {}
  cudaError_t Copy(const PeerCopy& copy, int half, cudaStream_t stream) const;
  // The place of another rank in a list without this rank.
  size_t PlaceOf(int rank) const { return static_cast<size_t>(rank - (rank > rank_ ? 1 : 0)); }

  const std::unique_ptr<PeerSlots> slots_;
  const std::unique_ptr<PeerPuts> puts_;
  const int rank_;
  const int ranks_;
  const int sm_count_;
};

}  // namespace baton::cuda
