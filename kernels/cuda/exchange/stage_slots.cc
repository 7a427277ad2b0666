#include "kernels/cuda/exchange/stage_slots.h"

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

StatusOr<std::unique_ptr<StageSlots>> StageSlots::Create(Collective& host) {
  std::unique_ptr<StageSlots> slots(new StageSlots(host.rank(), host.size()));
  const auto initialize = [&](std::byte* own) -> Status {
    BATON_RETURN_IF_ERROR(slots->arrived_.Reserve(sizeof(uint32_t)));
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(WordAt(own, kSentByPrevious), 0, kWords * kWordBytes));
    return OkStatus();
  };
  BATON_ASSIGN_OR_RETURN(slots->memory_, PeerMemory::Create(host, kBytes, initialize));
  return slots;
}

cudaError_t StageSlots::Send(const Tensor& x, cudaStream_t stream) const {
  std::byte* const own = memory_->own();
  std::byte* const next = memory_->peer((stage_ + 1) % stages_);
  return LaunchStageSend(x,
                         {.slots = next,
                          .slot_bytes = kSlotBytes,
                          .own_count = WordAt(own, kSent),
                          .peer_count = WordAt(own, kTakenByNext),
                          .count_at_peer = WordAt(next, kSentByPrevious),
                          .finished_blocks = WordAt(own, kSendBlocks),
                          .aborted = memory_->aborted()},
                         stream);
}

cudaError_t StageSlots::Receive(const Tensor& x, cudaStream_t stream) {
  ++received_;
  std::byte* const own = memory_->own();
  std::byte* const previous = memory_->peer((stage_ + stages_ - 1) % stages_);
  return LaunchStageReceive(x,
                            {.slots = own,
                             .slot_bytes = kSlotBytes,
                             .own_count = WordAt(own, kTaken),
                             .peer_count = WordAt(own, kSentByPrevious),
                             .count_at_peer = WordAt(previous, kTakenByNext),
                             .finished_blocks = WordAt(own, kReceiveBlocks),
                             .aborted = memory_->aborted()},
                            stream);
}

StatusOr<bool> StageSlots::HasArrived(cudaStream_t stream) const {
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(arrived_.data(),
                                             WordAt(memory_->own(), kSentByPrevious),
                                             sizeof(uint32_t),
                                             cudaMemcpyDeviceToHost,
                                             stream));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return *reinterpret_cast<const uint32_t*>(arrived_.data()) != received_;
}

}  // namespace baton::cuda
