#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/primitives/rounding.h"

// The thread blocks of kernels that process a row each. A thread processes vectors of 8 numbers.
namespace baton::cuda {

// The most threads of a block whose threads hold the row in registers.
inline constexpr int kMaxRowThreads = 512;

// Threads, in whole warps, for `cols` numbers with `vectors` vectors each.
inline unsigned ThreadsFor(int64_t cols, int64_t vectors) {
  constexpr int64_t kWarp = 32;
  return static_cast<unsigned>(RoundUp(CeilDiv(cols, 8 * vectors), kWarp));
}

// Calls `launch` with the vectors that each thread holds, as a constant: enough for a row of `cols`
// numbers, at most 16,384, in kMaxRowThreads threads.
template <class Launch>
cudaError_t ForVectors(int64_t cols, const Launch& launch) {
  if (cols <= 8 * kMaxRowThreads) return launch(std::integral_constant<int, 1>());
  if (cols <= 16 * kMaxRowThreads) return launch(std::integral_constant<int, 2>());
  return launch(std::integral_constant<int, 4>());
}

}  // namespace baton::cuda
