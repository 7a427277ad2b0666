#include "kernels/cuda/exchange/peer_slots.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {
namespace {

// The largest sum that one exchange moves: the activations of 8,192 tokens of 4,096 numbers in
// bf16.
constexpr size_t kSumBytes = size_t{64} << 20;
// Slots begin at multiples of this.
constexpr size_t kSlotMultiple = 256;

// Two ranks push all numbers to each other. Of more ranks, each pushes two slices to each other
// rank (LaunchTwoShotSum), so that all slots of a rank have less than 256 MiB for any number of
// ranks.
constexpr size_t PartBytes(int ranks) {
  const size_t slices = kSlotMultiple * static_cast<size_t>(ranks);
  return (2 * kSumBytes + slices - 1) / slices * kSlotMultiple;
}
static_assert(PartBytes(2) == kSumBytes);

// A rank receives what the other ranks have of half of the residual of 8,192 tokens of 8,192
// numbers in float32, or the half of these activations in bf16. The rows of the ranks may differ by
// one.
constexpr size_t PlaceBytes(int ranks) {
  constexpr size_t kHalfOfResidual = size_t{128} << 20;
  constexpr size_t kSlack = size_t{1} << 20;
  const auto count = static_cast<size_t>(ranks);
  return kHalfOfResidual / count / kSlotMultiple * kSlotMultiple * (count - 1) + kSlack;
}
constexpr size_t kScaleBytes = PeerSlots::kScales * sizeof(float);

}  // namespace

PeerSlots::PeerSlots(int rank, int ranks)
    : rank_(rank), ranks_(ranks), part_bytes_(PartBytes(ranks)), place_bytes_(PlaceBytes(ranks)) {}

StatusOr<std::unique_ptr<PeerSlots>> PeerSlots::Create(Collective& host) {
  if (host.size() > kMaxPeerRanks) {
    return MakeStatus(
        StatusCode::kUnavailable, "{} ranks; slots serve {}", host.size(), kMaxPeerRanks);
  }
  std::unique_ptr<PeerSlots> slots(new PeerSlots(host.rank(), host.size()));
  const size_t bytes = kHalves * slots->HalfBytes();
  const auto empty = [&](std::byte* own) -> Status {
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own, static_cast<int>(kEmptySlot & 0xff), bytes));
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(own + bytes, 0, sizeof(int32_t)));
    return OkStatus();
  };
  BATON_ASSIGN_OR_RETURN(
      slots->memory_, PeerMemory::Create(host, slots->PlaceOffset(kPlaces) + kScaleBytes, empty));
  return slots;
}

PeerTargets PeerSlots::Targets(int half) const {
  PeerTargets to = {};
  size_t peer = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const auto slot = static_cast<size_t>(rank_ - (rank_ > rank ? 1 : 0));
    to[peer++] = reinterpret_cast<uint4*>(
        memory_->of(rank) + static_cast<size_t>(half) * HalfBytes() + slot * part_bytes_);
  }
  return to;
}

PeerParts PeerSlots::Parts(int half) const {
  std::byte* const own = memory_->own();
  return {.slots = reinterpret_cast<uint4*>(own + static_cast<size_t>(half) * HalfBytes()),
          .slot_vectors = static_cast<int64_t>(part_bytes_ / sizeof(uint4)),
          .ranks = ranks_,
          .rank = rank_,
          .aborted = memory_->aborted(),
          .gave_up = reinterpret_cast<int32_t*>(own + kHalves * HalfBytes())};
}

}  // namespace baton::cuda
