#include "kernels/state_chains.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace baton {
namespace {

// Those of both states.
std::span<const int32_t> BlocksOf(const StepInput& input, const SequenceRows& sequence) {
  return input.block_tables.subspan(static_cast<size_t>(sequence.state_table),
                                    2 * static_cast<size_t>(input.state_blocks));
}

}  // namespace

std::span<const int32_t> StateBefore(const StepInput& input, const SequenceRows& sequence) {
  return BlocksOf(input, sequence).first(static_cast<size_t>(input.state_blocks));
}

std::span<const int32_t> StateAfter(const StepInput& input, const SequenceRows& sequence) {
  return BlocksOf(input, sequence).last(static_cast<size_t>(input.state_blocks));
}

int32_t StateChains::FirstOf(int32_t sequence) const {
  while (earlier_[static_cast<size_t>(sequence)] != sequence) {
    sequence = earlier_[static_cast<size_t>(sequence)];
  }
  return sequence;
}

void StateChains::Build(const StepInput& input, int32_t arena_blocks) {
  const size_t count = input.sequences.size();
  earlier_.resize(count);
  std::iota(earlier_.begin(), earlier_.end(), 0);
  if (std::cmp_less(last_user_.size(), arena_blocks)) {
    last_user_.resize(static_cast<size_t>(arena_blocks), -1);
  }
  for (size_t i = 0; i < count; ++i) {
    const auto sequence = static_cast<int32_t>(i);
    for (const int32_t block : BlocksOf(input, input.sequences[i])) {
      const int32_t user = std::exchange(last_user_[static_cast<size_t>(block)], sequence);
      if (user < 0) continue;
      const auto [first, other] = std::minmax({FirstOf(user), FirstOf(sequence)});
      earlier_[static_cast<size_t>(other)] = first;
    }
  }
  for (const SequenceRows& sequence : input.sequences) {
    for (const int32_t block : BlocksOf(input, sequence)) {
      last_user_[static_cast<size_t>(block)] = -1;
    }
  }
  for (size_t i = 0; i < count; ++i) earlier_[i] = FirstOf(static_cast<int32_t>(i));
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0);
  const auto first_of = [this](int32_t sequence) {
    return earlier_[static_cast<size_t>(sequence)];
  };
  std::ranges::stable_sort(order_, {}, first_of);
  ends_.clear();
  for (size_t i = 1; i <= count; ++i) {
    if (i == count || first_of(order_[i]) != first_of(order_[i - 1])) ends_.push_back(i);
  }
}

}  // namespace baton
