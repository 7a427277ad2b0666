#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"

// The kernels of FlashAttention 2 over the paged arena, as units of compilation give them to the
// functions of attention_kernels.h and rows_alone.h.
namespace baton::cuda {

enum class PagedForm : uint8_t {
  kRows,    // tiles of 16 packed rows
  kChunks,  // tiles of ChunkTile packed rows
  // The same for deterministic mode: a row's bits do not depend on the other rows of its chunk.
  kChunkRowsAlone,
};

// The kernels of one form, for all head sizes.
struct PagedKernelSet {
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const PagedWork& work, const AttentionLaunch& call);
};
// Each is compiled in a unit of its own, because it takes long.
PagedKernelSet Flash2Rows();                     // flash2_decode.cu
PagedKernelSet Flash2Chunks(bool rows_alone);    // flash2_prefill.cu
PagedKernelSet Flash2Fp8(PagedForm form);        // flash2_fp8.cu
PagedKernelSet Flash2Capped(PagedForm form);     // flash2_capped.cu
PagedKernelSet Flash2CappedFp8(PagedForm form);  // flash2_capped_fp8.cu

}  // namespace baton::cuda
