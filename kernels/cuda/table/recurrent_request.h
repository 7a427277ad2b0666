#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_request.h"
#include "kernels/recurrent_ops.h"

// The request of recurrent layers to the kernel table.
namespace baton::cuda {

// The most rows of a head's state, by kernel, and inputs that an output of the convolution depends
// on.
inline constexpr int32_t kMaxStateRows = 256;
inline constexpr int32_t kMaxScanRows = 64;
inline constexpr int32_t kMaxConvolvedInputs = 16;

KernelRequest RecurrentRequest(const RecurrentShape& shape, bool deterministic);

}  // namespace baton::cuda
