#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/input/state_layout.h"
#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/cuda/table/recurrent_request.h"
#include "kernels/kv_view.h"

// The chunked form of the gated delta rule (arXiv:2406.06484, arXiv:2412.06464), for the sequences
// of StateLayout::chunks. With c the sum of the logarithms of decays from the beginning of a chunk
// on, and β = sigmoid(b), the changes u of a chunk's rows t solve
//   u_t + Σ_{s < t} L_ts u_s = β_t (v_t − e^c_t · S₀ᵀ k_t)    L_ts = β_t e^(c_t − c_s) k_tᵀ k_s
// and with T = (1 + L)⁻¹, U₀ = T β V and W = T β e^c K,
//   U    = U₀ − W S₀
//   S    = e^c_last S₀ + Σ_t e^(c_last − c_t) k_t ⊗ u_t
//   qᵀ S = e^c_t q_tᵀ S₀ + Σ_{s ≤ t} e^(c_t − c_s) q_tᵀ k_s · u_s
// One kernel makes q, k, qᵀ k, U₀, W and c of all chunks, the second one walks the chunks of a
// sequence and keeps S at the beginning of each, and the third one computes the outputs of all
// chunks. Products are of numbers in bf16, with sums in float32. T and S are float32.
namespace baton::cuda {

inline constexpr int kChunkRows = kStateChunkRows;
inline constexpr int kChunkDim = kDeltaStateDim;  // rows and columns of S

// What the kernels hand over, in the scratch memory of the op.
struct ChunkMemory {
  __nv_bfloat16* q = nullptr;       // [chunk][key head][kChunkRows][kChunkDim]
  __nv_bfloat16* k = nullptr;       // the same
  __nv_bfloat16* pairs = nullptr;   // [chunk][key head][kChunkRows][kChunkRows]; q_tᵀ k_s
  __nv_bfloat16* w = nullptr;       // [chunk][value head][kChunkRows][kChunkDim]
  __nv_bfloat16* u = nullptr;       // the same; U₀, then U
  __nv_bfloat16* states = nullptr;  // [chunk][value head][kChunkDim][kChunkDim]; S before it
  float* decays = nullptr;          // [chunk][value head][kChunkRows]; c

  static ChunkMemory At(std::byte* memory, const RecurrentShape& shape, int64_t chunks);
  // Bytes of a chunk.
  static int64_t Bytes(const RecurrentShape& shape);
};

struct ChunkArguments {
  RecurrentLayer layer;
  ChunkMemory memory;
  const StateRows* rows;
  const StateChunk* chunks;
  int key_heads;
  int value_heads;
  int group;  // value heads of a key head
};

}  // namespace baton::cuda
