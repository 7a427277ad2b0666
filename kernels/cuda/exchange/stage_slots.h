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

// Messages between the stages of a pipeline, over NVLink or PCIe. Every stage has a ring of slots
// on its device, into which the stage before it writes; the first stage receives from the last one.
// A sender waits only while kStageSlots messages are not taken, so that the last stage goes on with
// the next step while the first one computes. One thread, except Abort.
class StageSlots final {
 public:
  // The largest message: 2,048 rows of 8,192 activations, or 130 of 128,256 logits.
  static constexpr size_t kSlotBytes = size_t{64} << 20;

  // Connects the stages of `host` for the current device. The other stages must have ended their
  // last exchange before one destroys its slots. Errors: those of PeerMemory::Create.
  static StatusOr<std::unique_ptr<StageSlots>> Create(Collective& host);

  // Sends a message to the stage behind this one, or receives one from the stage before. A graph
  // can capture both.
  cudaError_t Send(const Tensor& x, cudaStream_t stream) const;
  cudaError_t Receive(const Tensor& x, cudaStream_t stream);
  // Whether a message has arrived for which Receive was not called yet. Waits for the work on
  // `stream`. Only where no graph receives. A kernel that waits for a message would keep an SM from
  // the kernels of other streams.
  StatusOr<bool> HasArrived(cudaStream_t stream) const;

  // Ends the waits of all kernels on this rank's device. Any thread.
  void Abort() const { memory_->Abort(); }

 private:
  // Words behind the slots, each in a line of its own.
  enum Word : uint8_t { kWritten, kTaken, kSent, kSentBlocks, kReceived, kReceivedBlocks, kWords };
  static constexpr size_t kWordBytes = 256;
  static constexpr size_t kBytes = kStageSlots * kSlotBytes + kWords * kWordBytes;

  StageSlots(int stage, int stages) : stage_(stage), stages_(stages) {}
  static uint32_t* WordOf(std::byte* memory, Word word) {
    return reinterpret_cast<uint32_t*>(memory + kStageSlots * kSlotBytes + word * kWordBytes);
  }

  const int stage_;
  const int stages_;
  uint32_t received_ = 0;  // messages for which Receive was called
  PinnedMemory written_;   // scratch of HasArrived
  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace baton::cuda
