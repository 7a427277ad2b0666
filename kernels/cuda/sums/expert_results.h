#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace baton::cuda {

// The results of the experts that each row has chosen, before they are added up.
struct ExpertResults {
  const __nv_bfloat16* results = nullptr;  // [slots][cols]; null: none
  const int32_t* slots = nullptr;          // [rows][per_token], in ascending order of experts
                                           // within a row; -1: there is no result
  const int32_t* experts = nullptr;        // [rows][per_token], the numbers of the experts
  const float* weights = nullptr;          // [rows][per_token]
  int32_t per_token = 0;
  int32_t layer_experts = 0;  // experts of the layer, on all ranks
  int64_t cols = 0;

  bool operator==(const ExpertResults&) const = default;
};

}  // namespace baton::cuda
