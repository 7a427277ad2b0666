#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/latent/latent_ops.h"

namespace baton::cuda {

// Calls put(i, value) for the numbers x[i] of a row, i < dim, after their rotation; without angles
// for the numbers as they are. Thread `thread` of `threads` has some pairs. `x` may be where `put`
// stores them.
template <class Put>
__device__ __forceinline__ void RotateLatent(const LatentAngles& angles,
                                             int64_t row,
                                             int dim,
                                             int thread,
                                             int threads,
                                             const __nv_bfloat16* x,
                                             const Put& put) {
  const bool adjacent = angles.pairing == RopePairing::kAdjacent;
  for (int i = thread; i < angles.pairs; i += threads) {
    const float2 angle = angles.at[row * angles.pairs + i];
    const int first = adjacent ? 2 * i : i;
    const int second = adjacent ? 2 * i + 1 : i + angles.pairs;
    const float low = __bfloat162float(x[first]);
    const float high = __bfloat162float(x[second]);
    put(first, low * angle.x - high * angle.y);
    put(second, low * angle.y + high * angle.x);
  }
  for (int i = 2 * angles.pairs + thread; i < dim; i += threads) put(i, __bfloat162float(x[i]));
}

}  // namespace baton::cuda
