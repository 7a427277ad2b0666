#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/tree_sum.cuh"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/sums/expert_results.h"
#include "kernels/expert_parts.h"

namespace baton::cuda {

// Eight numbers of Σ weight · result of a row, from column `col` on: added in float32, the results
// of a part of the layer's experts (expert_parts.h) in the order of experts, then the parts as a
// tree. Results are loaded in batches, so that several loads are under way at a time.
__device__ __forceinline__ void SumOfResults(const ExpertResults& from,
                                             int64_t row,
                                             int64_t col,
                                             float (&to)[8]) {
  constexpr int32_t kBatch = 8;
  const int32_t* const slots = from.slots + row * from.per_token;
  const int32_t* const experts = from.experts + row * from.per_token;
  const float* const weights = from.weights + row * from.per_token;
  TreeSum<8> sum;
  for (int32_t first = 0; first < from.per_token; first += kBatch) {
    int32_t slot[kBatch];
    Packed8 results[kBatch];
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      slot[i] = first + i < from.per_token ? slots[first + i] : -1;
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      if (slot[i] >= 0) results[i] = Load8(from.results + slot[i] * from.cols + col);
    }
#pragma unroll
    for (int32_t i = 0; i < kBatch; ++i) {
      if (slot[i] < 0) continue;
      const float weight = weights[first + i];
      sum.Begin(PartOfExpert(from.layer_experts, experts[first + i]));
      float result[8];
      Unpack(results[i], result);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum.leaf()[j] += weight * result[j];
    }
  }
  sum.Total(to);
}

}  // namespace baton::cuda
