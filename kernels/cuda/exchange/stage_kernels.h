#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

// Kernels that move messages between the stages of a pipeline (StageSlots).
namespace baton::cuda {

inline constexpr uint32_t kStageSlots = 4;

// One end of the ring of slots between two stages. Counts of messages wrap around.
struct StageEnd {
  std::byte* slots = nullptr;  // [kStageSlots][slot_bytes], in the receiver's memory
  size_t slot_bytes = 0;
  // In this rank's memory: the messages that the other end has written or taken so far.
  const uint32_t* other = nullptr;
  uint32_t* tell = nullptr;    // in the other rank's memory: its `other`
  uint32_t* count = nullptr;   // in this rank's memory: the messages of this end so far
  uint32_t* blocks = nullptr;  // in this rank's memory: thread blocks that are done; 0 between
  const int32_t* aborted = nullptr;  // in host memory; not 0: the other rank will not come
};

// Writes `x`, which has at most slot_bytes bytes without the gaps between its rows, into the next
// slot. Waits until the receiver has taken the message that had the slot before.
cudaError_t LaunchStageSend(const Tensor& x, const StageEnd& end, cudaStream_t stream);

// Waits for the next message, which has as many bytes as `x`, and takes it.
cudaError_t LaunchStageReceive(const Tensor& x, const StageEnd& end, cudaStream_t stream);

}  // namespace baton::cuda
