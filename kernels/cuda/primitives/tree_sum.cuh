#pragma once

#include <cstdint>

namespace baton::cuda {

// Adds up to 8 parts in float32, as a binary tree: ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 +
// p7)). A tensor rank of 2, 4 or 8 that has whole subtrees adds them as one rank alone would, so
// that the sum over the ranks (rank_sum.cuh) has the same bits at every degree. A part is kCount
// sums that begin at +0; a part that does not exist counts as +0.
template <int kCount>
class TreeSum {
 public:
  // Begins part `part`. Parts begin in ascending order.
  __device__ __forceinline__ void Begin(int32_t part) {
    const int32_t changed = part ^ part_;
    part_ = part;
    if (changed != 0) Fold(leaf_, pairs_);
    if (changed > 1) Fold(pairs_, fours_);
    if (changed > 3) Fold(fours_, all_);
  }
  // The sum of the part so far.
  __device__ __forceinline__ float (&leaf())[kCount] { return leaf_; }
  // After the last part.
  __device__ __forceinline__ void Total(float (&to)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = all_[i] + (fours_[i] + (pairs_[i] + leaf_[i]));
  }

 private:
  static __device__ __forceinline__ void Fold(float (&from)[kCount], float (&to)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      to[i] += from[i];
      from[i] = 0;
    }
  }

  int32_t part_ = 0;
  float leaf_[kCount] = {};
  float pairs_[kCount] = {};
  float fours_[kCount] = {};
  float all_[kCount] = {};
};

}  // namespace baton::cuda
