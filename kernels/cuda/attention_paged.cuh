#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/pos_enc.cuh>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/launch.cuh"

// FlashInfer's FlashAttention-2 kernel over pages (flashinfer/attention/prefill.cuh), launched with
// tiles of our choice and plans of our own.
namespace baton::cuda {

// kKvTiles is how many 16-token tiles of K each warp holds in registers at once: the most that lets
// two thread blocks share an SM of sm_80 and sm_90.
template <int kHeadDim, int kTile, int kKvTiles, class Out>
struct PagedKernel {
  using Brain = __nv_bfloat16;
  using Params = flashinfer::BatchPrefillPagedParams<Brain, Brain, Out, int32_t>;
  using Variant = flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                               /*use_sliding_window=*/true,
                                               /*use_logits_soft_cap=*/false,
                                               /*use_alibi=*/false>;
  using Traits = flashinfer::KernelTraits<flashinfer::MaskMode::kCausal,
                                          kTile,
                                          flashinfer::get_num_mma_q(kTile),
                                          kKvTiles,
                                          kHeadDim / 16,
                                          kHeadDim / 16,
                                          flashinfer::get_num_warps_q(kTile),
                                          flashinfer::get_num_warps_kv(kTile),
                                          flashinfer::PosEncodingMode::kNone,
                                          Brain,
                                          Brain,
                                          Out,
                                          float,
                                          int32_t,
                                          Variant>;
  static_assert(!Traits::IsInvalid());
  static constexpr size_t kSharedBytes = sizeof(typename Traits::SharedStoragePaged);
  static constexpr auto kKernel =
      flashinfer::BatchPrefillWithPagedKVCacheKernel</*SAME_KV_STRIDES=*/true, Traits, Params>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(
        kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  }

  static cudaError_t Launch(const PagedWork& work, const AttentionCall& call) {
    const Params params = Describe(work, call);
    const dim3 grid(static_cast<uint32_t>(work.pieces), 1, call.shape.kv_heads);
    const dim3 block(32, Traits::NUM_WARPS_Q, Traits::NUM_WARPS_KV);
    if (call.overlapped) {
      return LaunchOverlapped(kKernel, grid, block, kSharedBytes, call.stream, params);
    }
    kKernel<<<grid, block, kSharedBytes, call.stream>>>(params);
    return cudaGetLastError();
  }

 private:
  // FlashInfer's structs take pointers to what they only read.
  template <class T>
  static T* Mutable(const T* p) {
    return const_cast<T*>(p);
  }

  static Params Describe(const PagedWork& work, const AttentionCall& call) {
    const AttentionShape& shape = call.shape;
    const KvView& kv = call.kv;
    const SequenceTables& tables = work.sequences;
    std::byte* keys = kv.base + call.layer * kv.layer_stride;
    const int64_t strides[3] = {kv.block_stride / 2, kv.head_stride / 2, kHeadDim};
    const flashinfer::paged_kv_t<Brain, int32_t> paged(
        static_cast<uint32_t>(shape.kv_heads),
        static_cast<uint32_t>(kv.block_tokens),
        kHeadDim,
        static_cast<uint32_t>(tables.sequences),
        flashinfer::QKVLayout::kHND,
        reinterpret_cast<Brain*>(keys),
        reinterpret_cast<Brain*>(keys + kv.part_stride),
        strides,
        Mutable(tables.tables),
        Mutable(tables.table_starts),
        Mutable(tables.last_tokens));
    Params params;
    params.q = reinterpret_cast<Brain*>(call.qkv.data);
    params.paged_kv = paged;
    params.q_indptr = Mutable(tables.row_starts);
    params.group_size = flashinfer::uint_fastdiv(static_cast<uint32_t>(shape.group()));
    params.num_qo_heads = static_cast<uint32_t>(shape.q_heads);
    params.q_stride_n = static_cast<int32_t>(call.qkv.stride);
    params.q_stride_h = kHeadDim;
    params.window_left = shape.window > 0 ? shape.window - 1 : -1;
    params.sm_scale = shape.scale;
    params.rope_rcp_scale = 1.0f;
    params.rope_rcp_theta = 1.0f;
    params.request_indices = Mutable(work.sequence);
    params.qo_tile_indices = Mutable(work.query_tile);
    params.kv_tile_indices = Mutable(work.part);
    params.o_indptr = Mutable(work.out_starts);
    params.block_valid_mask = Mutable(work.valid);
    params.kv_chunk_size_ptr = Mutable(work.part_tokens);
    params.max_total_num_rows = static_cast<uint32_t>(work.row_count);
    params.padded_batch_size = static_cast<uint32_t>(work.pieces);
    params.partition_kv = work.merge.rows > 0;
    if constexpr (std::is_same_v<Out, float>) {
      params.o = work.merge.partial.values;
      params.lse = work.merge.partial.weights;
    } else {
      params.o = reinterpret_cast<Brain*>(call.out.data);
    }
    return params;
  }
};

// A kernel for whole contexts, and one that writes partial results in float32.
template <int kHeadDim, int kTile, int kKvTiles>
struct PagedKernels {
  using Whole = PagedKernel<kHeadDim, kTile, kKvTiles, __nv_bfloat16>;
  using Split = PagedKernel<kHeadDim, kTile, kKvTiles, float>;

  static cudaError_t Prepare() {
    const cudaError_t error = Whole::Prepare();
    return error != cudaSuccess ? error : Split::Prepare();
  }
  static cudaError_t Launch(const PagedWork& work, const AttentionCall& call) {
    return work.merge.rows > 0 ? Split::Launch(work, call) : Whole::Launch(work, call);
  }
};

}  // namespace baton::cuda
