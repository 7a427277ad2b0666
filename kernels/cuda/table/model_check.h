#pragma once

#include "common/base/status.h"
#include "kernels/cuda/table/architecture.h"
#include "kernels/ops.h"

namespace baton::cuda {

// Implements Ops::CheckModel: whether the kernel table has a kernel for each op of a model whose
// shape may lack one.
Status CheckModel(const ModelShape& shape, const DeviceProperties& device, bool deterministic);

}  // namespace baton::cuda
