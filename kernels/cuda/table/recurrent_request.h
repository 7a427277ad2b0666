#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_request.h"
#include "kernels/kv_view.h"
#include "kernels/recurrent_ops.h"

// The request of recurrent layers to the kernel table.
namespace baton::cuda {

// The most rows of a head's state, by kernel, and inputs that an output of the convolution depends
// on.
inline constexpr int32_t kMaxStateRows = 256;
inline constexpr int32_t kMaxScanRows = 64;
inline constexpr int32_t kMaxConvolvedInputs = 16;
// The rows and columns of a state, and the most inputs that an output of the convolution depends
// on, for the kernels of single rows and of chunks.
inline constexpr int32_t kDeltaStateDim = 128;
inline constexpr int32_t kMaxDeltaInputs = 4;
// The alignment of states in bytes for the kernel of single rows.
inline constexpr int32_t kDecodeAlignment = 16;
// Numbers of x that these kernels read at once; those of chunks also write as many.
inline constexpr int32_t kDecodeVector = 2;
inline constexpr int32_t kChunkVector = 8;

// The largest power of two that divides the addresses of all parts of states, up to
// kDecodeAlignment.
int64_t StateAlignment(const RecurrentShape& shape, const KvView& kv);

KernelRequest RecurrentRequest(const RecurrentShape& shape, bool deterministic);
// Of sequences with one row each and of those with many rows; not for kSelectiveScan.
KernelRequest RecurrentChunksRequest(const RecurrentShape& shape, bool deterministic);
KernelRequest RecurrentRowsRequest(const RecurrentShape& shape,
                                   int64_t state_alignment,
                                   bool deterministic);

}  // namespace baton::cuda
