#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "common/base/status.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/cuda/exchange/peer_puts.h"
#include "kernels/cuda/exchange/peer_slots.h"

namespace baton::cuda {

// Runs the exchanges of tensor ranks through slots (PeerSlots), with kernels on the stream of the
// step, and puts with copy engines (PeerPuts). One thread, except Abort.
class PeerExchange final {
 public:
  // Errors: those of PeerSlots::Create and PeerPuts::Create.
  static StatusOr<std::unique_ptr<PeerExchange>> Create(Collective& host,
                                                        const DeviceProperties& device);

  // The maximum number of bytes that a rank sends to another rank in one exchange.
  size_t slot_bytes() const { return slots_->slot_bytes(); }
  // The arguments of a kernel that exchanges and adds the parts itself, without a ReduceOp.
  PeerParts Parts(int slot_buffer) const { return slots_->Parts(slot_buffer); }
  PeerTargets Targets(int slot_buffer) const {
    return InPushOrder(slots_->Targets(slot_buffer), Parts(slot_buffer));
  }

  // The memory that receives the puts of other ranks (PeerSlots::PutBuffer, PeerSlots::Scales).
  std::byte* put_buffer(int index) const { return slots_->PutBuffer(index); }
  float* scales() const { return slots_->Scales(); }
  size_t put_buffer_bytes() const { return slots_->put_buffer_bytes(); }

  // Issues an op; its slot_buffer must not be kThroughNccl. A graph can capture the op.
  cudaError_t Launch(const ReduceOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const PutOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const AwaitPutOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const GatherColumnsOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const BarrierOp& op, cudaStream_t stream) const;
  cudaError_t Launch(const ShareTokensOp& op, cudaStream_t stream) const;
  // Ends the exchanges in flight on this rank's device. Any thread.
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
  cudaError_t Copy(const PeerCopy& copy, int slot_buffer, cudaStream_t stream) const;
  // The index of another rank in a list of all ranks but this one.
  size_t PeerIndex(int rank) const { return static_cast<size_t>(rank - (rank > rank_ ? 1 : 0)); }

  const std::unique_ptr<PeerSlots> slots_;
  const std::unique_ptr<PeerPuts> puts_;
  const int rank_;
  const int ranks_;
  const int sm_count_;
};

}  // namespace baton::cuda
