#pragma once

#include "common/base/status.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Implements Ops::CheckModel: whether attention, experts and sampling support a model's shape.
Status CheckModel(const ModelShape& shape);

}  // namespace baton::cuda
