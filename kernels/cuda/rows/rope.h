#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/rows/quantize.h"
#include "kernels/kv_view.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// angles[row][i] = magnitude · (cos a, sin a), with a = positions[row] · inverse_frequencies[i].
cudaError_t LaunchAngles(const float* inverse_frequencies,
                         int32_t pairs,
                         const int32_t* positions,
                         int32_t rows,
                         float magnitude,
                         float2* angles,
                         cudaStream_t stream);

struct RopeLaunch {
  Tensor qkv;             // [rows][(q + 2·kv) heads · dim], bf16
  OutputScales scales{};  // not applied to qkv yet
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t pairs = 0;              // the first 2·pairs dimensions are rotated
  const float* q_norm = nullptr;  // RMS norm of every head, or null
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
  bool norm_after_rope = false;      // false: before it
  const float* kv_scales = nullptr;  // RopeArgs::kv_scales
  float query_slope = 0;             // QueryScaling::slope of RopeArgs::query_scaling, and `step`
  int32_t query_step = 1;
  int32_t layer = 0;
  const float2* angles = nullptr;       // [rows][pairs]
  const int32_t* positions = nullptr;   // [rows]
  const int32_t* row_blocks = nullptr;  // [rows]; -1: this row's KV is not stored
};

// Applies `scales` to qkv, normalises and rotates q and k in place, and writes k and v of each row
// to the row's block of `kv`.
cudaError_t LaunchRope(const RopeLaunch& launch, const KvView& kv, cudaStream_t stream);

}  // namespace baton::cuda
