#pragma once

#include <cstdint>

namespace baton::cuda {

// Adds up to 8 parts in float32, as a binary tree: ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 +
// p7)). So 2, 4 or 8 tensor ranks that have whole subtrees get the bits of one rank that has all
// parts. A part is kCount sums. A part that does not exist counts as -0, which adds nothing.
template <int kCount>
class TreeSum {
 public:
  __device__ __forceinline__ TreeSum() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) leaf_[i] = pairs_[i] = fours_[i] = all_[i] = -0.0f;
  }
  // Begins part `part`. Parts begin in ascending order.
  __device__ __forceinline__ void Begin(int32_t part) {
    const int32_t changed = part ^ part_;
    part_ = part;
    if (changed != 0) Fold(leaf_, pairs_);
    if (changed > 1) Fold(pairs_, fours_);
    if (changed > 3) Fold(fours_, all_);
  }
  // The sums of the part so far.
  __device__ __forceinline__ float (&leaf())[kCount] {
    return leaf_;
  }
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
      from[i] = -0.0f;
    }
  }

  int32_t part_ = 0;
  float leaf_[kCount];
  float pairs_[kCount];
  float fours_[kCount];
  float all_[kCount];
};

}  // namespace baton::cuda
