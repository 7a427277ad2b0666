#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/recurrent/chunk_rows.h"

// The three kernels of the chunked form, in the order in which they run. chunk_rows.h says what
// they compute.
namespace baton::cuda {

// Also writes the inputs of the convolution into the states.
cudaError_t LaunchPrepareChunks(const ChunkArguments& chunks,
                                const ChunkRowsOp& op,
                                const StateLayout& states,
                                int count,
                                const KvView& kv,
                                cudaStream_t stream);
cudaError_t LaunchWalkChunks(const ChunkArguments& chunks,
                             const ChunkRowsOp& op,
                             const StateLayout& states,
                             const StateChunks& layout,
                             const KvView& kv,
                             cudaStream_t stream);
cudaError_t LaunchFinishChunks(const ChunkArguments& chunks,
                               const ChunkRowsOp& op,
                               int count,
                               cudaStream_t stream);

}  // namespace baton::cuda
