#pragma once

// Reductions over one value of each thread of a thread block. Every thread gets the result.
namespace baton::cuda {

// `reduce_warp` reduces over a warp, with the result in every lane. `none` is its neutral element.
// The thread block consists of whole warps. The order of operations is fixed. A kernel may call
// each instantiation only once: a second call would overwrite shared memory that other warps may
// still read.
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
