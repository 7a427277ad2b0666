#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"

namespace baton {

// The scales of one layer's KV cache in E4M3, [K of every KV head | V of every KV head], from the
// weights alone: the least powers of two with which no number a head can produce is too large.
//   A row that a norm of weights g has left is x ∘ g, with x no longer than √hidden; so w·(x ∘ g) +
//   b is ‖w ∘ g‖·√hidden + |b| at most. A normalised head is √head_dim·|g| at most; rope makes it
//   √2 times that.
// Usual numbers lie √hidden below. They are as exact there as at the top: E4M3 keeps its precision
// for 15 doublings, and what it loses below them is small against a row's usual numbers.
// Every worker with the same weights has the same scales.
StatusOr<std::vector<float>> ComputeKvScales(const ModelSpec& spec,
                                             const WeightSource& source,
                                             int32_t layer,
                                             float rope_magnitude);

}  // namespace baton
