#pragma once

#include "kernels/cuda/experts/expert_gate.cuh"
#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/packed/packed_format.h"

// What the GEMMs of experts with packed weights share: packed_gemm.cu with mma.sync, and
// packed_wgmma.cu.
namespace baton::cuda {

enum class PackedGemm {
  kGateUp,
  kUp,  // of experts without a gate
  kDown
};

struct PackedGemmArgs {
  const __nv_bfloat16* x = nullptr;
  int64_t x_stride = 0;
  int32_t inputs = 0;   // a multiple of 8
  int32_t outputs = 0;  // of a row of `out`; with kGateUp a multiple of kTileOutputs
  PackedLayout layout = {};
  int32_t chunks = 0;                     // of a tile of outputs
  const void* const* weights = nullptr;   // per expert
  const float* const* factors = nullptr;  // per expert those of its rows; null: 1
  const float* const* biases = nullptr;   // the same; null: none
  ExpertGate gate = {};
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* slot_rows = nullptr;   // kGateUp, kUp: the row of x for a slot
  const float* slot_weights = nullptr;  // kGateUp, kUp: factors of the products; null: none
  __nv_bfloat16* out = nullptr;         // [slot][outputs]
  int32_t stages = 2;                   // of the ring
};

// Matrices from which an output is computed.
template <PackedGemm kGemm>
inline constexpr int kMatrices = kGemm == PackedGemm::kGateUp ? 2 : 1;

// What is added and multiplied behind the products of one output.
struct OutputTerms {
  float factor = 1;
  float bias = 0;
};

__device__ __forceinline__ OutputTerms TermsOf(const PackedGemmArgs& args,
                                               int32_t expert,
                                               int32_t line) {
  OutputTerms terms;
  if (args.factors != nullptr) terms.factor = args.factors[expert][line];
  if (args.biases != nullptr) terms.bias = args.biases[expert][line];
  return terms;
}

// An output of a slot whose factor is `of_slot`, from the products of its matrices.
template <PackedGemm kGemm>
__device__ __forceinline__ float OutputOf(const PackedGemmArgs& args,
                                          const OutputTerms& terms,
                                          const OutputTerms& up_terms,
                                          float of_slot,
                                          float sum,
                                          float up_sum) {
  const float value = sum * terms.factor * of_slot + terms.bias;
  if constexpr (kGemm == PackedGemm::kGateUp) {
    return Gated(args.gate, value, up_sum * up_terms.factor * of_slot + up_terms.bias);
  } else {
    return kGemm == PackedGemm::kUp ? SquaredRelu(value) : value;
  }
}

// The factor of a slot's inputs.
template <PackedGemm kGemm>
__device__ __forceinline__ float FactorOf(const PackedGemmArgs& args,
                                          const ExpertTile& tile,
                                          int32_t row) {
  const bool has = kGemm != PackedGemm::kDown && args.slot_weights != nullptr && row < tile.rows;
  return has ? args.slot_weights[tile.first_slot + row] : 1.0f;
}

// The kernel for few rows (packed_rows.cu): whether it takes tiles of `tile_rows` rows, and its
// launch.
bool FitsPackedRows(const PackedGemmArgs& args, int32_t tile_rows);
cudaError_t LaunchPackedRows(const PackedGemmArgs& args,
                             PackedGemm gemm,
                             const PackedFormat& format,
                             int32_t tile_rows,
                             int64_t row_tiles,
                             cudaStream_t stream);

PackedGemmArgs ArgsOfGateUp(const Tensor& x,
                            const PreparedExperts& experts,
                            const ExpertScratch& scratch);
PackedGemmArgs ArgsOfDown(const PreparedExperts& experts, const ExpertScratch& scratch);

}  // namespace baton::cuda
