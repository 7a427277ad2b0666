#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The scales of one layer's FP8 KV cache, [K of every KV head | V of every KV head], computed from
// the weights alone: for each head the smallest power of two with which no possible value of the
// head overflows E4M3.
//   The output of an RMS norm with weights g is x ∘ g with ‖x‖ ≤ √hidden. So |w·(x ∘ g) + b| is at
//   most ‖w ∘ g‖·√hidden + |b|. An element of a normalised head is at most √head_dim·|g|; rope
//   multiplies this bound by √2.
// Typical values are a factor of √hidden below the bound. They are as precise there as near the
// bound: E4M3 keeps its precision over 15 powers of two, and what it loses below them is small
// relative to the typical values of a row.
// Every worker with the same weights computes the same scales. With `kv_heads`, only the scales of
// these heads are computed and only their rows are read.
StatusOr<std::vector<float>> ComputeKvScales(const ModelSpec& spec,
                                             const WeightSource& source,
                                             int32_t layer,
                                             float rope_magnitude,
                                             const std::optional<IndexRange>& kv_heads = {});

}  // namespace baton
