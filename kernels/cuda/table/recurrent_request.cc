#include "kernels/cuda/table/recurrent_request.h"

#include <cstdint>

namespace baton::cuda {

KernelRequest RecurrentRequest(const RecurrentShape& shape, bool deterministic) {
  KernelRequest request;
  request.op = shape.rule == RecurrentRule::kSelectiveScan ? KernelOp::kScan : KernelOp::kRecurrent;
  request.operands = Operands::kF32;
  request.deterministic = deterministic;
  request[Property::kRows] = 1;
  request[Property::kStateRows] = shape.key_dim;
  request[Property::kConvolvedInputs] = shape.kernel;
  return request;
}

KernelRequest RecurrentChunksRequest(const RecurrentShape& shape, bool deterministic) {
  KernelRequest request = RecurrentRequest(shape, deterministic);
  request.op = KernelOp::kRecurrentChunks;
  request[Property::kStateColumns] = shape.value_dim;
  if (shape.rule == RecurrentRule::kDelta) request[Property::kDeltaRule] = 1;
  if (shape.rule == RecurrentRule::kChannelDelta) request[Property::kDeltaRule] = 2;
  return request;
}

KernelRequest RecurrentRowsRequest(const RecurrentShape& shape,
                                   int64_t state_alignment,
                                   bool deterministic) {
  KernelRequest request = RecurrentChunksRequest(shape, deterministic);
  request.op = KernelOp::kRecurrentRows;
  request[Property::kStateAlignment] = state_alignment;
  return request;
}

int64_t StateAlignment(const RecurrentShape& shape, const KvView& kv) {
  const int64_t matrix = int64_t{shape.key_dim} * shape.value_dim * sizeof(float);
  int64_t alignment = kDecodeAlignment;
  for (const int64_t bytes : {static_cast<int64_t>(reinterpret_cast<uintptr_t>(kv.base)),
                              kv.block_stride,
                              kv.state.block_bytes,
                              kv.state.layer_bytes,
                              matrix}) {
    while (bytes % alignment != 0) alignment /= 2;
  }
  return alignment;
}

}  // namespace baton::cuda
