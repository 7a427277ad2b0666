#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

// Kernels that move messages between the stages of a pipeline (StageSlots).
namespace baton::cuda {

inline constexpr uint32_t kStageSlots = 4;

// The sending or the receiving end of the ring of slots between two stages. The counts of messages
// wrap around.
struct StageEnd {
  std::byte* slots = nullptr;  // [kStageSlots][slot_bytes], in the receiver's memory
  size_t slot_bytes = 0;
  // In this rank's memory: the number of messages that this end has sent or taken.
  uint32_t* own_count = nullptr;
  // In this rank's memory: the same number for the peer, which writes it.
  const uint32_t* peer_count = nullptr;
  // In the peer's memory: its `peer_count`, which this end writes.
  uint32_t* count_at_peer = nullptr;
  // In this rank's memory: the number of thread blocks of the running kernel that have finished; 0
  // between kernels.
  uint32_t* finished_blocks = nullptr;
  // In host memory; not 0: the peer will not continue.
  const int32_t* aborted = nullptr;
};

// Waits until the next slot is free, and writes `x` into it. The rows of `x` have at most
// slot_bytes bytes without the gaps between them.
cudaError_t LaunchStageSend(const Tensor& x, const StageEnd& end, cudaStream_t stream);

// Waits until the next message has arrived, and copies it into `x`. The message has as many bytes
// as `x`.
cudaError_t LaunchStageReceive(const Tensor& x, const StageEnd& end, cudaStream_t stream);

}  // namespace baton::cuda
