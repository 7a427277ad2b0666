#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/latent_ops.h"

namespace baton::cuda {

enum class KernelId : uint8_t;

// Everything that determines how attention to latents is split: a step makes one plan for each.
struct LatentWork {
  LatentShape shape;
  float scale = 0;
  int32_t cache_group = 0;
  // As AttentionShape::only_logit_rows.
  bool only_logit_rows = false;
  bool operator==(const LatentWork&) const = default;
};

// What a thread block of KernelId::kTiledLatents has in shared memory: the queries of `heads` heads
// of a row, and `stages` tiles of latents.
struct LatentTile {
  int32_t heads = 0;
  int32_t stages = 0;
  bool operator==(const LatentTile&) const = default;
};

// As AttentionPlan.
struct LatentPlan {
  LatentWork work;
  KernelId kernel = {};
  LatentTile tile;  // of KernelId::kTiledLatents
  PortableWork tiles;
  bool operator==(const LatentPlan&) const = default;
};

}  // namespace baton::cuda
