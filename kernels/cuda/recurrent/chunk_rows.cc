#include "kernels/cuda/recurrent/chunk_rows.h"

#include "kernels/cuda/recurrent/chunk_kernels.h"
#include "kernels/cuda/recurrent/recurrent_kernels.h"

namespace baton::cuda {
namespace {

// Numbers of a chunk.
int64_t KeyNumbers(const RecurrentShape& shape) {
  return int64_t{shape.key_heads} * kChunkRows * kChunkDim;
}
int64_t PairNumbers(const RecurrentShape& shape) {
  return int64_t{shape.key_heads} * kChunkRows * kChunkRows;
}
int64_t ValueNumbers(const RecurrentShape& shape) {
  return int64_t{shape.value_heads} * kChunkRows * kChunkDim;
}
int64_t StateNumbers(const RecurrentShape& shape) {
  return int64_t{shape.value_heads} * kChunkDim * kChunkDim;
}
int64_t Decays(const RecurrentShape& shape) {
  return int64_t{shape.value_heads} * kChunkRows;
}

}  // namespace

ChunkMemory ChunkMemory::At(std::byte* memory, const RecurrentShape& shape, int64_t chunks) {
  const auto take = [&memory, chunks](int64_t numbers) {
    auto* const taken = reinterpret_cast<__nv_bfloat16*>(memory);
    memory += chunks * numbers * static_cast<int64_t>(sizeof(__nv_bfloat16));
    return taken;
  };
  ChunkMemory parts;
  parts.q = take(KeyNumbers(shape));
  parts.k = take(KeyNumbers(shape));
  parts.pairs = take(PairNumbers(shape));
  parts.w = take(ValueNumbers(shape));
  parts.u = take(ValueNumbers(shape));
  parts.states = take(StateNumbers(shape));
  parts.decays = reinterpret_cast<float*>(memory);
  return parts;
}

int64_t ChunkMemory::Bytes(const RecurrentShape& shape) {
  const int64_t numbers =
      2 * KeyNumbers(shape) + PairNumbers(shape) + 2 * ValueNumbers(shape) + StateNumbers(shape);
  return numbers * static_cast<int64_t>(sizeof(__nv_bfloat16)) +
         Decays(shape) * static_cast<int64_t>(sizeof(float));
}

cudaError_t LaunchChunkRows(const ChunkRowsOp& op,
                            const StateLayout& states,
                            const StateChunks& layout,
                            const KvView& kv,
                            cudaStream_t stream) {
  const RecurrentShape& shape = op.layer.shape;
  const ChunkArguments a = {.layer = op.layer,
                            .memory = ChunkMemory::At(op.memory.data, shape, layout.chunks),
                            .rows = states.d_rows,
                            .chunks = layout.d_chunks,
                            .key_heads = shape.key_heads,
                            .value_heads = shape.value_heads,
                            .group = shape.group()};
  cudaError_t error = LaunchPrepareChunks(a, op, states, layout.chunks, kv, stream);
  if (error != cudaSuccess) return error;
  error = LaunchWalkChunks(a, op, states, layout, kv, stream);
  if (error != cudaSuccess) return error;
  return LaunchFinishChunks(a, op, layout.chunks, stream);
}

}  // namespace baton::cuda
