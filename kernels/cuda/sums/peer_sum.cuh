#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/float_numbers.cuh"
#include "kernels/cuda/primitives/tree_sum.cuh"
#include "kernels/cuda/sums/peer_parts.cuh"

namespace baton::cuda {

// The elements of a vector of 16 bytes.
template <class T>
struct Elements {
  static constexpr int kCount = sizeof(uint4) / sizeof(T);
  T values[kCount];
};

// Takes vector `at` of all other ranks (TakeParts) and adds the vectors of all ranks as a tree
// (TreeSum). `own` is this rank's vector. The group has at most kPeers other ranks.
template <class T, int kPeers>
__device__ __forceinline__ void SumOverRanks(const PeerParts& parts,
                                             const uint4& own,
                                             int64_t at,
                                             float (&to)[Elements<T>::kCount]) {
  constexpr int kCount = Elements<T>::kCount;
  uint4 others[kPeers];
  TakeParts(parts, parts.ranks - 1, at, others);
  TreeSum<kCount> sum;
#pragma unroll
  for (int32_t rank = 0; rank <= kPeers; ++rank) {
    // Constant indices keep the vectors in registers.
    const uint4& before = others[rank == 0 ? 0 : rank - 1];
    const uint4& after = others[rank == kPeers ? kPeers - 1 : rank];
    const uint4 vector = rank < parts.rank ? after : rank == parts.rank ? own : before;
    const auto elements = *reinterpret_cast<const Elements<T>*>(&vector);
    sum.Begin(rank);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sum.leaf()[i] += rank < parts.ranks ? ToFloat(elements.values[i]) : -0.0f;
    }
  }
  sum.Total(to);
}

}  // namespace baton::cuda
