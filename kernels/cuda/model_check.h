#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Tokens of a KV block are read in vectors of this many.
inline constexpr int32_t kBlockTokenMultiple = 8;

// Ops::CheckModel: whether attention, experts and sampling take models of such a shape.
Status CheckModel(const ModelShape& shape);

}  // namespace baton::cuda
