#pragma once

#include <cuda_runtime_api.h>

// Attention kernels that cap logits (AttentionArgs::cap) are instances of their own. The functions
// of attention_kernels.h launch them for shapes with a cap.
namespace baton::cuda {

// Call once, before any graph capture.
cudaError_t PrepareCappedPagedAttention();
cudaError_t PrepareCappedClusterAttention();

}  // namespace baton::cuda
