#pragma once

#include <cstdint>

namespace baton::cuda {

// A position in a ring of pipeline stages, and the phase parity of the stages' barriers in the
// current round.
struct RingCursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  // `steps` must be less than `stages`, the number of stages of the ring.
  __device__ __forceinline__ void Advance(int32_t steps, int32_t stages) {
    slot += steps;
    if (slot < stages) return;
    slot -= stages;
    parity ^= 1;
  }
};

}  // namespace baton::cuda
