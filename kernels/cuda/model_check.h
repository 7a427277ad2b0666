#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "kernels/ops.h"

namespace baton::cuda {

// A KV block has a multiple of this many tokens, because kernels read tokens in vectors of this
// size.
inline constexpr int32_t kBlockTokenMultiple = 8;

// Implements Ops::CheckModel: whether attention, experts and sampling support a model's shape.
Status CheckModel(const ModelShape& shape);

}  // namespace baton::cuda
