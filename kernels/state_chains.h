#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/step_input.h"

namespace baton {

// The blocks of the state that is read before the rows of a sequence, and of the one that is
// written after them.
std::span<const int32_t> StateBefore(const StepInput& input, const SequenceRows& sequence);
std::span<const int32_t> StateAfter(const StepInput& input, const SequenceRows& sequence);

// The sequences of a step in chains: those that use a common block of states are in one chain, in
// their order, because one may read what another one writes. Chains can be computed at the same
// time.
class StateChains {
 public:
  // `arena_blocks`: the blocks of the arena, to which all blocks of states belong.
  void Build(const StepInput& input, int32_t arena_blocks);

  size_t size() const { return ends_.size(); }
  // Indices of sequences.
  std::span<const int32_t> chain(size_t index) const {
    const size_t first = index == 0 ? 0 : ends_[index - 1];
    return std::span(order_).subspan(first, ends_[index] - first);
  }

 private:
  int32_t FirstOf(int32_t sequence) const;

  std::vector<int32_t> order_;  // the sequences, chain by chain
  std::vector<size_t> ends_;    // by chain, in order_

  // Memory of Build. An earlier sequence of the same chain; the first one names itself.
  std::vector<int32_t> earlier_;
  std::vector<int32_t> last_user_;  // by block; -1, as between calls: none
};

}  // namespace baton
