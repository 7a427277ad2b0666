#pragma once

#include "kernels/cuda/experts/packed_experts.cuh"

// The end of the GEMMs of experts with packed weights by mma.sync (packed_gemm.cu, packed_rows.cu):
// two groups of warps have divided the inputs; the sums of a lane are those of mma.sync.
namespace baton::cuda {

// Two groups of four warps, one warp for 16 outputs of a tile each. Group g takes the chunks g,
// g + 2, g + 4, …
inline constexpr int kPackedSplits = 2;
inline constexpr int kPackedGroupThreads = 128;
inline constexpr int kPackedThreads = kPackedSplits * kPackedGroupThreads;
// bf16 numbers of a row of outputs in shared memory, with padding.
inline constexpr int32_t kOutRowNumbers = kTileOutputs + 8;

// Bytes of shared memory that AddSplits and StoreTile need.
template <int kRows, PackedGemm kGemm>
inline constexpr int32_t kStoreBytes =
    kMatrices<kGemm>* kRows / 8 * 4 * kPackedGroupThreads * 4 > kRows* kOutRowNumbers * 2
        ? kMatrices<kGemm>* kRows / 8 * 4 * kPackedGroupThreads * 4
        : kRows* kOutRowNumbers * 2;

// Adds the second group's sums to those of the first group.
template <int kCount>
__device__ __forceinline__ void AddSplits(float* shared, float (&sums)[kCount]) {
  const auto thread = static_cast<int>(threadIdx.x) % kPackedGroupThreads;
  if (threadIdx.x >= kPackedGroupThreads) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[i * kPackedGroupThreads + thread] = sums[i];
  }
  __syncthreads();
  if (threadIdx.x < kPackedGroupThreads) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += shared[i * kPackedGroupThreads + thread];
  }
  __syncthreads();
}

// Writes the tile: through shared memory, so that threads write neighbouring outputs together. The
// first group of warps has the sums.
template <int kRows, PackedGemm kGemm>
__device__ __forceinline__ void PutOutputs(const PackedGemmArgs& args,
                                           const ExpertTile& tile,
                                           __nv_bfloat16* shared,
                                           float (&sums)[kMatrices<kGemm>][kRows / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kTileOutputs;
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
    const int32_t within = warp * 16 + eight * 8 + lane / 4;
    const int32_t output = min(first_output + within, args.outputs - 1);
    const OutputTerms terms = TermsOf(args, tile.expert, output);
    OutputTerms up;
    if constexpr (kGemm == PackedGemm::kGateUp) {
      up = TermsOf(args, tile.expert, args.outputs + output);
    }
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const int row = j * 8 + lane % 4 * 2 + next;
        const int at = eight * 2 + next;
        const float value = OutputOf<kGemm>(args,
                                            terms,
                                            up,
                                            FactorOf<kGemm>(args, tile, row),
                                            sums[0][j][at],
                                            sums[kMatrices<kGemm> - 1][j][at]);
        shared[row * kOutRowNumbers + within] = __float2bfloat16(value);
      }
    }
  }
}

template <int kRows, PackedGemm kGemm>
__device__ __forceinline__ void StoreTile(const PackedGemmArgs& args,
                                          const ExpertTile& tile,
                                          __nv_bfloat16* shared,
                                          float (&sums)[kMatrices<kGemm>][kRows / 8][4]) {
  if (threadIdx.x < kPackedGroupThreads) PutOutputs<kRows, kGemm>(args, tile, shared, sums);
  __syncthreads();
  const auto first_output = static_cast<int32_t>(blockIdx.x) * kTileOutputs;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < tile.rows * kTileOutputs / 8;
       i += kPackedThreads) {
    const int32_t row = i / (kTileOutputs / 8);
    const int32_t output = i % (kTileOutputs / 8) * 8;
    if (first_output + output >= args.outputs) continue;
    *reinterpret_cast<uint4*>(args.out + (tile.first_slot + row) * int64_t{args.outputs} +
                              first_output + output) =
        *reinterpret_cast<const uint4*>(shared + row * kOutRowNumbers + output);
  }
}

}  // namespace baton::cuda
