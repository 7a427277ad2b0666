#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/attention/attention_kernels.h"

namespace baton::cuda {

// LaunchChunkAttention and LaunchFp8ChunkAttention for deterministic mode: a row's bits do not
// depend on the other rows of its chunk. Contexts must not be split.
cudaError_t LaunchChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call);
cudaError_t LaunchFp8ChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call);

}  // namespace baton::cuda
