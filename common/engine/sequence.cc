#include "common/engine/sequence.h"

#include "common/base/check.h"

namespace baton {

std::string_view Name(SequenceState state) {
  switch (state) {
    case SequenceState::kWaiting:
      return "waiting";
    case SequenceState::kAwaitingKv:
      return "awaiting_kv";
    case SequenceState::kRunning:
      return "running";
    case SequenceState::kFinished:
      return "finished";
  }
  return "?";
}

void Sequence::MoveTo(SequenceState to) {
  BATON_CHECK(kSequenceMoves[static_cast<size_t>(state)][static_cast<size_t>(to)],
              "sequence cannot go from {} to {}",
              Name(state),
              Name(to));
  state = to;
}

uint64_t SampleSeed(uint64_t seed, int32_t sample) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  uint64_t z = seed + (static_cast<uint64_t>(sample) + 1) * kGolden;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace baton
