#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/cuda/latent/latent_plan.h"
#include "kernels/latent_ops.h"
#include "kernels/tensor.h"

// The ops of multi-head latent attention as data (step_ops.h). Weights and angles are on the
// device.
namespace baton::cuda {

// How the rotated numbers behind a latent or a query turn.
struct LatentAngles {
  const float2* at = nullptr;  // [rows][pairs]
  int32_t pairs = 0;           // 0: nothing is rotated
  RopePairing pairing = RopePairing::kAdjacent;
  bool operator==(const LatentAngles&) const = default;
};

// As LatentOps::WriteLatent.
struct WriteLatentOp {
  Tensor kv;
  int32_t rank = 0;
  LatentAngles angles = {};
  const float* norm = nullptr;
  float norm_epsilon = 0;
  int32_t cache_group = 0;
  int32_t layer = 0;  // KvLayerPlace::index
  bool operator==(const WriteLatentOp&) const = default;
};

// The matrices of all heads, [n][k] each.
using HeadPointers = std::vector<const __nv_bfloat16*>;

// Of each head, out = W x: LatentOps::AbsorbQueries and ExpandValues. Behind the k numbers of a
// head of x, and the n of its outputs, may be numbers that are rotated instead.
struct HeadGemmOp {
  Tensor x;
  int32_t x_head = 0;  // from a head of x to the next one
  Tensor out;
  int32_t out_head = 0;
  int32_t n = 0;
  int32_t k = 0;
  std::shared_ptr<const HeadPointers> weights;
  int32_t rope_dim = 0;
  LatentAngles angles = {};
  bool operator==(const HeadGemmOp& other) const;
};

// As LatentOps::AttendLatents.
struct AttendLatentsOp {
  Tensor q;
  LatentWork work;
  // Null until the step is planned. Shared by all layers.
  std::shared_ptr<const LatentPlan> plan;
  int32_t layer = 0;  // KvLayerPlace::index
  Tensor out;
  bool operator==(const AttendLatentsOp& other) const;
};

using LatentOp = std::variant<WriteLatentOp, HeadGemmOp, AttendLatentsOp>;

}  // namespace baton::cuda
