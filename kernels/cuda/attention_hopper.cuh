#pragma once

#include <cutlass/numeric_types.h>

#include <cstdint>

#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "kernels/cuda/attention_kernels.h"

// FlashInfer's FlashAttention-3 kernel over contiguous K and V (flashinfer/attention/hopper), with
// lists of work of our own.
namespace baton::cuda {

template <int kHeadDim>
cudaError_t LaunchHopper(const RaggedWork& work, const AttentionCall& call) {
  using Brain = cutlass::bfloat16_t;
  using Params = flashinfer::BatchPrefillRaggedParams<Brain, Brain, Brain, int32_t>;
  using Variant = flashinfer::DefaultAttention</*use_logits_soft_cap=*/false>;
  const auto list = [](const int32_t* p) { return const_cast<int32_t*>(p); };
  const AttentionShape& shape = call.shape;
  const int64_t kv_size = int64_t{shape.kv_heads} * kHeadDim;
  auto* qkv = reinterpret_cast<Brain*>(call.qkv.data);
  Params params = {};
  params.q_ptr = qkv;
  params.o_ptr = reinterpret_cast<Brain*>(call.out.data);
  params.q_stride_n = call.qkv.stride;
  params.q_stride_h = kHeadDim;
  params.o_stride_n = call.out.stride;
  params.o_stride_h = kHeadDim;
  params.nnz_qo = work.row_count;
  if (work.gather.sequences > 0) {
    params.k_ptr = reinterpret_cast<Brain*>(work.gather.to);
    params.v_ptr = params.k_ptr + work.gather.tokens * kv_size;
    params.k_stride_n = kHeadDim;
    params.k_stride_h = int64_t{work.gather.tokens} * kHeadDim;
    params.nnz_kv = work.gather.tokens;
  } else {
    params.k_ptr = qkv + int64_t{shape.q_heads} * kHeadDim;
    params.v_ptr = params.k_ptr + kv_size;
    params.k_stride_n = call.qkv.stride;
    params.k_stride_h = kHeadDim;
    params.nnz_kv = work.row_count;
  }
  params.v_stride_n = params.k_stride_n;
  params.v_stride_h = params.k_stride_h;
  params.qo_tile_indices = list(work.query_tile);
  params.qo_indptr = list(work.query_start);
  params.kv_indptr = list(work.key_start);
  params.qo_lens = list(work.query_rows);
  params.kv_lens = list(work.keys);
  params.head_indices = list(work.head);
  params.work_indptr = list(work.starts);
  params.batch_indices = list(work.sequence);
  params.additional_params.sm_scale = shape.scale;
  params.num_qo_heads = shape.q_heads;
  params.num_kv_heads = shape.kv_heads;
  params.group_size = shape.group();
  params.window_left = -1;
  params.causal = true;
  return flashinfer::BatchPrefillWithRaggedKVCacheDispatched<kHeadDim,
                                                             kHeadDim,
                                                             flashinfer::MaskMode::kCausal,
                                                             /*LEFT_SLIDING_WINDOW=*/false,
                                                             /*SAME_SCHEDULE_FOR_ALL_HEADS=*/false,
                                                             Variant>(
      params, /*enable_pdl=*/false, call.stream);
}

}  // namespace baton::cuda
