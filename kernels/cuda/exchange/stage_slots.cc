#include "kernels/cuda/exchange/stage_slots.h"

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

StatusOr<std::unique_ptr<StageSlots>> StageSlots::Create(Collective& host) {
  std::unique_ptr<StageSlots> slots(new StageSlots(host.rank(), host.size()));
  const auto initialize = [&](std::byte* own) -> Status {
    BATON_RETURN_IF_ERROR(slots->written_.Reserve(sizeof(uint32_t)));
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(WordOf(own, kWritten), 0, kWords * kWordBytes));
    return OkStatus();
  };
  BATON_ASSIGN_OR_RETURN(slots->memory_, PeerMemory::Create(host, kBytes, initialize));
  return slots;
}

cudaError_t StageSlots::Send(const Tensor& x, cudaStream_t stream) const {
  std::byte* const own = memory_->own();
  std::byte* const next = memory_->of((stage_ + 1) % stages_);
  return LaunchStageSend(x,
                         {.slots = next,
                          .slot_bytes = kSlotBytes,
                          .other = WordOf(own, kTaken),
                          .tell = WordOf(next, kWritten),
                          .count = WordOf(own, kSent),
                          .blocks = WordOf(own, kSentBlocks),
                          .aborted = memory_->aborted()},
                         stream);
}

cudaError_t StageSlots::Receive(const Tensor& x, cudaStream_t stream) {
  ++received_;
  std::byte* const own = memory_->own();
  std::byte* const previous = memory_->of((stage_ + stages_ - 1) % stages_);
  return LaunchStageReceive(x,
                            {.slots = own,
                             .slot_bytes = kSlotBytes,
                             .other = WordOf(own, kWritten),
                             .tell = WordOf(previous, kTaken),
                             .count = WordOf(own, kReceived),
                             .blocks = WordOf(own, kReceivedBlocks),
                             .aborted = memory_->aborted()},
                            stream);
}

StatusOr<bool> StageSlots::HasArrived(cudaStream_t stream) const {
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(written_.data(),
                                             WordOf(memory_->own(), kWritten),
                                             sizeof(uint32_t),
                                             cudaMemcpyDeviceToHost,
                                             stream));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return *reinterpret_cast<const uint32_t*>(written_.data()) != received_;
}

}  // namespace baton::cuda
