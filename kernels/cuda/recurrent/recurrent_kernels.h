#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/input/state_layout.h"
#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/cuda/table/recurrent_request.h"
#include "kernels/kv_view.h"

// The kernels of recurrent layers. They walk the rows of a sequence in order, and the sequences of
// a chain (StateChains), so that a row has the same bits in every chunk.
// RecurrentRequest says which shapes they have.
namespace baton::cuda {

cudaError_t LaunchConvolve(const ConvolveOp& op,
                           const StateLayout& states,
                           const KvView& kv,
                           cudaStream_t stream);
cudaError_t LaunchUpdateStates(const UpdateStatesOp& op,
                               const StateLayout& states,
                               const KvView& kv,
                               cudaStream_t stream);
cudaError_t LaunchFinishRows(const FinishRowsOp& op,
                             const StateLayout& states,
                             cudaStream_t stream);
cudaError_t LaunchDecodeRows(const DecodeRowsOp& op,
                             const StateLayout& states,
                             const KvView& kv,
                             cudaStream_t stream);
cudaError_t LaunchChunkRows(const ChunkRowsOp& op,
                            const StateLayout& states,
                            const StateChunks& layout,
                            const KvView& kv,
                            cudaStream_t stream);
cudaError_t LaunchScan(const ScanOp& op,
                       const StateLayout& states,
                       const KvView& kv,
                       cudaStream_t stream);

}  // namespace baton::cuda
