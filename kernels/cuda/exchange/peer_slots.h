#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/cuda/exchange/peer_kernels.h"
#include "kernels/cuda/exchange/peer_memory.h"
#include "kernels/cuda/primitives/peer_parts.h"

namespace baton::cuda {

// Memory on each rank's device into which the other ranks push numbers, over NVLink or PCIe. There
// are no flags: a slot that has not been filled holds kEmptySlot in every word, so the kernel that
// needs the numbers waits for the numbers themselves.
//
// The slots have two halves, which consecutive exchanges use in turn. In every exchange each rank
// receives something from each other rank. When a rank has received it, the other rank has finished
// the exchange before, whose slots are therefore empty again. All ranks make the same exchanges in
// the same order, each on one stream. One thread, except Abort.
//
// Within an exchange each place of a slot is filled once and emptied once. That is why both phases
// of a two-shot sum fit one half: the slices of numbers and the slices of sums have places of their
// own. Its slices are not empty, so that each rank receives numbers from each other rank.
//
// Ranks also have places, into which the copy engines of other ranks write rows. The places are
// used in turn, and marks through the slots tell that a place has been filled. What is in a place
// has been read before this rank's third next PutOp. Beside the places are scales of FP8 rows, one
// for each row of a step, to which the rules of the rows' place apply.
class PeerSlots final {
 public:
  static constexpr int kHalves = 2;
  static constexpr int kPlaces = 4;
  static constexpr int64_t kScales = int64_t{64} << 10;

  // Gives the ranks of `host` access to each other's slots, for the current device. The other ranks
  // must have ended their last exchange before a rank destroys its slots. Errors: Unavailable with
  // more than kMaxPeerRanks ranks; those of PeerMemory::Create.
  static StatusOr<std::unique_ptr<PeerSlots>> Create(Collective& host);

  // The bytes of a slot: the most that a rank pushes to another rank in an exchange.
  size_t part_bytes() const { return part_bytes_; }
  // The bytes of a place.
  size_t place_bytes() const { return place_bytes_; }
  std::byte* Place(int place) const { return memory_->own() + PlaceOffset(place); }
  // kScales scales; behind the places.
  float* Scales() const { return reinterpret_cast<float*>(Place(kPlaces)); }
  // The address, in the memory of another rank, of what this rank has at `own`.
  std::byte* Of(int rank, std::byte* own) const {
    return memory_->of(rank) + (own - memory_->own());
  }
  // This rank's slots in the memory of the other ranks, by rank without this one.
  PeerTargets Targets(int half) const;
  // The slots of the other ranks in this rank's memory.
  PeerParts Parts(int half) const;
  // Ends the waits of all kernels on this rank's device. Any thread.
  void Abort() const { memory_->Abort(); }

 private:
  static constexpr size_t kFlagBytes = 256;  // for PeerParts::gave_up

  PeerSlots(int rank, int ranks);
  size_t HalfBytes() const { return part_bytes_ * static_cast<size_t>(ranks_ - 1); }
  size_t PlaceOffset(int place) const {
    return kHalves * HalfBytes() + kFlagBytes + static_cast<size_t>(place) * place_bytes_;
  }

  const int rank_;
  const int ranks_;
  const size_t part_bytes_;
  const size_t place_bytes_;
  // [halves][ranks − 1][part_bytes], then PeerParts::gave_up, then [places][place_bytes],
  // then the scales.
  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace baton::cuda
