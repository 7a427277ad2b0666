#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/exchange/peer_slots.h"
#include "kernels/cuda/step/step_ops.h"

// Hides the sums of two tensor ranks in long prompts: the ops between two attention ops treat rows
// independently, so they can run for one half of the rows while the parts of the other half's sum
// are under way. Copy engines move the parts (CopyPartOp), because every SM multiplies. A norm adds
// the parts up, with the bits of a ReduceOp.
namespace baton::cuda {

struct RowSplit {
  int32_t rank = 0;  // of two tensor ranks
  // Where this rank receives the parts of the other rank, which are used in turn.
  std::array<std::byte*, PeerSlots::kPlaces> places = {};
  size_t place_bytes = 0;  // 0: nothing is split

  static RowSplit Between(const GroupExchange& ranks);
};

// Splits the ops of a step of `rows` rows before they are fused. A step of few rows, and sums whose
// halves a place cannot hold, stay as they are. The choice depends on shapes alone, so that both
// ranks make the same.
void SplitRows(std::vector<StepOp>& ops, int64_t rows, const RowSplit& split);

}  // namespace baton::cuda
