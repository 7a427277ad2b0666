#pragma once

#include <span>

#include "common/base/status.h"
#include "kernels/model_shape.h"

namespace baton::cuda {

// Whether the CUDA backend has what a model needs besides the ops that every family uses. Errors:
// Unimplemented, naming what it lacks.
Status CheckVariants(std::span<const OpVariant> variants);

}  // namespace baton::cuda
