#pragma once

// Of what each thread of a block has; every thread gets it.
namespace baton::cuda {

// `over_warp` does so for a warp, and `none` changes nothing. Threads come in whole warps. The
// order is fixed. Once in a kernel: others may still read what a second one would write.
template <class T, class OverWarp>
__device__ __forceinline__ T OverBlock(T mine, T none, const OverWarp& over_warp) {
  __shared__ T of_warps[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  mine = over_warp(mine);
  if (lane == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  return over_warp(lane < warps ? of_warps[lane] : none);
}

}  // namespace baton::cuda
