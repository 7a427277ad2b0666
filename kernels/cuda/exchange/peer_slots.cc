#include "kernels/cuda/exchange/peer_slots.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {
namespace {

// The largest sum of one exchange: the activations of 8,192 tokens of 4,096 elements in bf16.
constexpr size_t kSumBytes = size_t{64} << 20;
// Slots begin at multiples of this many bytes.
constexpr size_t kSlotMultiple = 256;

// The size of a slot. Two ranks push their whole input to each other. With more ranks, each rank
// pushes two slices to each other rank (LaunchTwoShotSum). So all slots of a rank take less than
// 256 MiB for any number of ranks.
constexpr size_t SlotBytes(int ranks) {
  const size_t slices = kSlotMultiple * static_cast<size_t>(ranks);
  return (2 * kSumBytes + slices - 1) / slices * kSlotMultiple;
}
static_assert(SlotBytes(2) == kSumBytes);

// The size of a put buffer, for half the rows of 8,192 tokens of 8,192 elements. A put buffer holds
// the other ranks' slices of the residual in float32, or all activations in bf16. kSlack leaves
// room for slices that have one row more than others.
constexpr size_t PutBufferBytes(int ranks) {
  constexpr size_t kHalfResidual = size_t{128} << 20;
  constexpr size_t kSlack = size_t{1} << 20;
  const auto count = static_cast<size_t>(ranks);
  return kHalfResidual / count / kSlotMultiple * kSlotMultiple * (count - 1) + kSlack;
}
constexpr size_t kScaleBytes = PeerSlots::kMaxScales * sizeof(float);

}  // namespace

PeerSlots::PeerSlots(int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      slot_bytes_(SlotBytes(ranks)),
      put_buffer_bytes_(PutBufferBytes(ranks)) {}

StatusOr<std::unique_ptr<PeerSlots>> PeerSlots::Create(Collective& host) {
  if (host.size() > kMaxPeerRanks) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the group has {} tensor ranks; slots support up to {}",
                      host.size(),
                      kMaxPeerRanks);
  }
  std::unique_ptr<PeerSlots> slots(new PeerSlots(host.rank(), host.size()));
  const size_t bytes = kSlotBuffers * slots->SlotBufferBytes();
  const auto empty = [&](std::byte* own) -> Status {
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own, static_cast<int>(kEmptySlot & 0xff), bytes));
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own + bytes, 0, sizeof(int32_t)));
    return OkStatus();
  };
  BATON_ASSIGN_OR_RETURN(
      slots->memory_,
      PeerMemory::Create(host, slots->PutBufferOffset(kPutBuffers) + kScaleBytes, empty));
  return slots;
}

PeerTargets PeerSlots::Targets(int slot_buffer) const {
  PeerTargets to = {};
  size_t peer = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const auto slot = static_cast<size_t>(rank_ - (rank_ > rank ? 1 : 0));
    to[peer++] = reinterpret_cast<uint4*>(memory_->peer(rank) +
                                          static_cast<size_t>(slot_buffer) * SlotBufferBytes() +
                                          slot * slot_bytes_);
  }
  return to;
}

PeerParts PeerSlots::Parts(int slot_buffer) const {
  std::byte* const own = memory_->own();
  return {
      .slots = reinterpret_cast<uint4*>(own + static_cast<size_t>(slot_buffer) * SlotBufferBytes()),
      .slot_vectors = static_cast<int64_t>(slot_bytes_ / sizeof(uint4)),
      .ranks = ranks_,
      .rank = rank_,
      .aborted = memory_->aborted(),
      .gave_up = reinterpret_cast<int32_t*>(own + kSlotBuffers * SlotBufferBytes())};
}

}  // namespace baton::cuda
