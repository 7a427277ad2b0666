#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/exchange/stage_kernels.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Messages between the stages of a pipeline, over NVLink or PCIe. Each stage has a ring of slots on
// its device, into which the previous stage writes. The first stage receives from the last one. A
// sender waits only while all kStageSlots slots hold messages that the receiver has not taken. So
// the last stage can continue with the next step while the first stage still computes. One thread,
// except Abort.
class StageSlots final {
 public:
  // The largest message: 2,048 rows of 8,192 activations, or 130 of 128,256 logits.
  static constexpr size_t kSlotBytes = size_t{64} << 20;

  // Connects the stages of `host` for the current device. A stage may destroy its slots when the
  // other stages have ended their last exchange. Errors: those of PeerMemory::Create.
  static StatusOr<std::unique_ptr<StageSlots>> Create(Collective& host);

  // Sends a message to the next stage. A graph can capture this.
  cudaError_t Send(const Tensor& x, cudaStream_t stream) const;
  // Receives a message from the previous stage. A graph can capture this.
  cudaError_t Receive(const Tensor& x, cudaStream_t stream);
  // Whether a message has arrived for which Receive was not called yet. Lets the host poll instead
  // of a waiting kernel, which would occupy SMs. Waits for the work on `stream`. Must not be used
  // if a graph has captured Receive, because this object counts its calls of Receive.
  StatusOr<bool> HasArrived(cudaStream_t stream) const;

  // Ends the waits of all kernels on this rank's device. Any thread.
  void Abort() const { memory_->Abort(); }

 private:
  // The words after the slots. Each has memory of kWordBytes, so that no two share a cache line.
  // The counts of messages and of finished thread blocks are those of StageEnd.
  enum Word : uint8_t {
    kSentByPrevious,
    kTakenByNext,
    kSent,
    kSendBlocks,
    kTaken,
    kReceiveBlocks,
    kWords,
  };
  static constexpr size_t kWordBytes = 256;
  static constexpr size_t kBytes = kStageSlots * kSlotBytes + kWords * kWordBytes;

  StageSlots(int stage, int stages) : stage_(stage), stages_(stages) {}
  static uint32_t* WordAt(std::byte* memory, Word word) {
    return reinterpret_cast<uint32_t*>(memory + kStageSlots * kSlotBytes + word * kWordBytes);
  }

  const int stage_;
  const int stages_;
  uint32_t received_ = 0;  // messages for which Receive was called
  PinnedMemory arrived_;   // where HasArrived reads the count of messages that have arrived
  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace baton::cuda
