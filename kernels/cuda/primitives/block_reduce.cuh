#pragma once

// Of what each thread of a block has; every thread gets it.
namespace baton::cuda {

// `reduce_warp` does so for a warp, and `none` changes nothing. Threads come in whole warps. The
// order is fixed. Once in a kernel: others may still read what a second one would write.
template <class T, class ReduceOverWarp>
__device__ __forceinline__ T ReduceOverBlock(T mine, T none, const ReduceOverWarp& reduce_warp) {
  __shared__ T of_warps[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  mine = reduce_warp(mine);
  if (lane == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  return reduce_warp(lane < warps ? of_warps[lane] : none);
}

}  // namespace baton::cuda
