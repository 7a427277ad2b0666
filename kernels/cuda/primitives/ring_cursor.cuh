#pragma once

#include <cstdint>

namespace baton::cuda {

// A place in a ring of stages, and the parity of their barriers' phase in this round.
struct RingCursor {
  int32_t slot = 0;
  uint32_t parity = 0;

  // By fewer stages than the ring has.
  __device__ __forceinline__ void Advance(int32_t steps, int32_t stages) {
    slot += steps;
    if (slot < stages) return;
    slot -= stages;
    parity ^= 1;
  }
};

}  // namespace baton::cuda
