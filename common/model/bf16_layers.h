#pragma once

#include <cstdint>

namespace baton {

// The GEMM weights that stay in bf16 when the backend stores weights in FP8, because FP8 costs most
// quality there. The defaults were found with a small model (kernels/cuda/notes/fp8_quality.md).
struct Bf16Layers {
  int32_t first_attention_outputs = 2;  // attention's output projections in this many first layers
  int32_t first_mlps = 1;               // MLPs or experts of this many first layers
  int32_t last_mlps = 1;                // MLPs or experts of this many last layers
};

}  // namespace baton
