#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/pos_enc.cuh>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/paged_kernels.h"
#include "kernels/cuda/primitives/fp8.cuh"
#include "kernels/cuda/primitives/launch.cuh"

// FlashInfer's paged FlashAttention-2 kernel (flashinfer/attention/prefill.cuh), with our own tiles
// and plans.
namespace baton::cuda {

using Fp8 = __nv_fp8_e4m3;

// The parameters of FlashInfer's kernel, with those of our variants.
template <class Kv, class Out>
struct VariantParams : flashinfer::BatchPrefillPagedParams<__nv_bfloat16, Kv, Out, int32_t> {
  const float* kv_scales = nullptr;  // RopeArgs::kv_scales, for KV in fp8
  const float* sinks = nullptr;      // AttentionArgs::sinks, or null
};

using WindowedAttention = flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                                       /*use_sliding_window=*/true,
                                                       /*use_logits_soft_cap=*/false,
                                                       /*use_alibi=*/false>;

// Causal attention with a window and sinks.
struct PlainAttention : WindowedAttention {
  using WindowedAttention::WindowedAttention;

  // Called once for each row and head. `d` is the sum of 2^(logit - m). Sinks join the sum of split
  // contexts when these are combined.
  REGISTER_M_D_UPDATE(params, kv_tile_idx, qo_head_idx, m, d, scale, {
    if constexpr (!std::is_same_v<typename Params::DTypeO, float>) {
      if (params.sinks != nullptr) d += SinkTerm(params.sinks[qo_head_idx], m);
    }
  })
};

// The same for K and V that are stored divided by a scale per head (the grid's third dimension).
// The scale of K multiplies the scores, the scale of V the result.
struct ScaledAttention : PlainAttention {
  float value_scale = 1.0f;

  template <class Params>
  __device__ __host__ ScaledAttention(const Params& params, uint32_t batch, uint8_t* shared)
      : PlainAttention(params, batch, shared) {
#ifdef __CUDA_ARCH__
    if (params.kv_scales != nullptr) {
      sm_scale_log2 *= params.kv_scales[blockIdx.z];
      value_scale = params.kv_scales[gridDim.z + blockIdx.z];
    }
#endif
  }

  REGISTER_OUTPUT_TRANSFORM(params, output, batch_idx, qo_idx, qo_head_idx, m, d, scale, {
    const float normalizer = m != -flashinfer::math::inf ? flashinfer::math::ptx_rcp(d) : 0.0f;
    return output * normalizer * value_scale;
  })
};

// `Base` with capped logits (AttentionArgs::cap).
template <class Base>
struct CappedAttention : Base {
  float scale = 1.0f;
  float cap = 0;

  template <class Params>
  __device__ __host__ CappedAttention(const Params& params, uint32_t batch, uint8_t* shared)
      : Base(params, batch, shared),
        scale(Base::sm_scale_log2),
        cap(params.logits_soft_cap * kLog2E) {
    this->sm_scale_log2 = 1.0f;
  }

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return Capped(logits * scale, cap);
  })
};

// `Base` for chunks whose rows must not depend on where a prompt was cut (deterministic mode). What
// a query tile computes for its other rows must then change nothing in a row:
//   Positions are divided at multiples of kPositions. FlashInfer divides them from the first one
//   that the tile's first row sees through a window. It gets a larger window for that, and the true
//   one is applied to each score.
//   Positions that a row does not see leave it as it is. FlashInfer multiplies sums by 2^(m · s -
//   m · s) for them, where only one of the products of maximum and scale is rounded. The scale is 1
//   here, so that the exponent is 0, and is applied to each score.
template <class Base, uint32_t kPositions, uint32_t kTile>
struct RowsAlone : Base {
  uint32_t seen_left = 0;  // positions that a row sees before its own
  float scale = 1.0f;

  template <class Params>
  __device__ __host__ RowsAlone(const Params& params, uint32_t batch, uint8_t* shared)
      : Base(params, batch, shared), seen_left(Base::window_left), scale(Base::sm_scale_log2) {
    this->sm_scale_log2 = 1.0f;
#ifdef __CUDA_ARCH__
    const auto tile = static_cast<uint32_t>(params.qo_tile_indices[blockIdx.x]);
    const uint32_t first_row = tile * kTile / static_cast<uint32_t>(params.group_size);
    const uint32_t position = this->kv_len - this->qo_len + first_row;
    if (position > seen_left) this->window_left += (position - seen_left) % kPositions;
#endif
  }

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    logits =
        Base::LogitsTransform(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx);
    return kv_idx + this->qo_len + seen_left >= this->kv_len + qo_idx ? logits * scale
                                                                      : T(-flashinfer::math::inf);
  })
};

// kKvTiles is the number of 16-token tiles of K that each warp holds in registers: the most with
// which two thread blocks fit on an SM of sm_80 and sm_90.
template <int kHeadDim,
          int kTile,
          int kKvTiles,
          class Kv,
          class Out,
          bool kCapped,
          bool kRowsAlone = false>
struct PagedKernel {
  using Bf16 = __nv_bfloat16;
  using Params = VariantParams<Kv, Out>;
  using Uncapped = std::conditional_t<kIsFp8<Kv>, ScaledAttention, PlainAttention>;
  using AnyRows = std::conditional_t<kCapped, CappedAttention<Uncapped>, Uncapped>;
  static constexpr uint32_t kPositions = 16 * kKvTiles * flashinfer::get_num_warps_kv(kTile);
  using Variant = std::conditional_t<kRowsAlone, RowsAlone<AnyRows, kPositions, kTile>, AnyRows>;
  using Traits = flashinfer::KernelTraits<flashinfer::MaskMode::kCausal,
                                          kTile,
                                          flashinfer::get_num_mma_q(kTile),
                                          kKvTiles,
                                          kHeadDim / 16,
                                          kHeadDim / 16,
                                          flashinfer::get_num_warps_q(kTile),
                                          flashinfer::get_num_warps_kv(kTile),
                                          flashinfer::PosEncodingMode::kNone,
                                          Bf16,
                                          Kv,
                                          Out,
                                          float,
                                          int32_t,
                                          Variant>;
  static_assert(!Traits::IsInvalid());
  static constexpr size_t kSharedBytes = sizeof(typename Traits::SharedStoragePaged);
  static_assert(kSharedBytes <= kPortableSharedBytes);
  static constexpr auto kKernel =
      flashinfer::BatchPrefillWithPagedKVCacheKernel</*SAME_KV_STRIDES=*/true, Traits, Params>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(
        kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  }

  static cudaError_t Launch(const PagedWork& work, const AttentionLaunch& call) {
    const Params params = Describe(work, call);
    const dim3 grid(static_cast<uint32_t>(work.work_tiles), 1, call.shape.kv_heads);
    const dim3 block(32, Traits::NUM_WARPS_Q, Traits::NUM_WARPS_KV);
    return LaunchOverlapped(kKernel, grid, block, kSharedBytes, call.stream, params);
  }

 private:
  // FlashInfer's structs take non-const pointers to data that they only read.
  template <class T>
  static T* Mutable(const T* p) {
    return const_cast<T*>(p);
  }

  static Params Describe(const PagedWork& work, const AttentionLaunch& call) {
    const AttentionShape& shape = call.shape;
    const KvView& kv = call.kv;
    const SequenceTables& tables = work.sequences;
    std::byte* keys = kv.base + call.layer * kv.layer_stride;
    constexpr int64_t kBytes = sizeof(Kv);
    const int64_t strides[3] = {kv.block_stride / kBytes, kv.head_stride / kBytes, kHeadDim};
    const flashinfer::paged_kv_t<Kv, int32_t> paged(static_cast<uint32_t>(shape.kv_heads),
                                                    static_cast<uint32_t>(kv.block_tokens),
                                                    kHeadDim,
                                                    static_cast<uint32_t>(tables.sequences),
                                                    flashinfer::QKVLayout::kHND,
                                                    reinterpret_cast<Kv*>(keys),
                                                    reinterpret_cast<Kv*>(keys + kv.value_offset),
                                                    strides,
                                                    Mutable(tables.tables),
                                                    Mutable(tables.table_starts),
                                                    Mutable(tables.last_tokens));
    Params params;
    params.q = reinterpret_cast<Bf16*>(call.qkv.data);
    params.paged_kv = paged;
    params.q_indptr = Mutable(tables.row_starts);
    params.group_size = flashinfer::uint_fastdiv(static_cast<uint32_t>(shape.group()));
    params.num_qo_heads = static_cast<uint32_t>(shape.q_heads);
    params.q_stride_n = static_cast<int32_t>(call.qkv.stride);
    params.q_stride_h = kHeadDim;
    params.window_left = shape.window > 0 ? shape.window - 1 : -1;
    params.sm_scale = shape.scale;
    params.logits_soft_cap = shape.cap;
    params.kv_scales = call.kv_scales;
    params.sinks = call.sinks;
    params.rope_rcp_scale = 1.0f;
    params.rope_rcp_theta = 1.0f;
    params.request_indices = Mutable(work.sequence);
    params.qo_tile_indices = Mutable(work.query_tile);
    params.kv_tile_indices = Mutable(work.split);
    params.o_indptr = Mutable(work.out_starts);
    params.block_valid_mask = Mutable(work.valid);
    params.kv_chunk_size_ptr = Mutable(work.split_tokens);
    params.max_total_num_rows = static_cast<uint32_t>(work.row_count);
    params.padded_batch_size = static_cast<uint32_t>(work.work_tiles);
    params.partition_kv = work.combine.rows > 0;
    if constexpr (std::is_same_v<Out, float>) {
      params.o = work.combine.partial.values;
      params.lse = work.combine.partial.lse;
    } else {
      params.o = reinterpret_cast<Bf16*>(call.out.data);
    }
    return params;
  }
};

// A kernel for whole contexts, and a split-KV kernel that writes partial results in float32.
template <int kHeadDim, int kTile, int kKvTiles, class Kv, bool kCapped>
struct PagedKernels {
  using Whole = PagedKernel<kHeadDim, kTile, kKvTiles, Kv, __nv_bfloat16, kCapped>;
  using Split = PagedKernel<kHeadDim, kTile, kKvTiles, Kv, float, kCapped>;

  static cudaError_t Prepare() {
    const cudaError_t error = Whole::Prepare();
    return error != cudaSuccess ? error : Split::Prepare();
  }
  static cudaError_t Launch(const PagedWork& work, const AttentionLaunch& call) {
    return work.combine.rows > 0 ? Split::Launch(work, call) : Whole::Launch(work, call);
  }
};

// The kernel for whole contexts that computes each row of a chunk alone.
template <int kHeadDim, int kTile, int kKvTiles, class Kv, bool kCapped>
using RowsAloneKernel = PagedKernel<kHeadDim, kTile, kKvTiles, Kv, __nv_bfloat16, kCapped, true>;

// One PagedKernels for each head size.
template <class For64, class For128, class For256>
struct ByHeadSize {
  static cudaError_t Prepare() {
    for (const cudaError_t error : {For64::Prepare(), For128::Prepare(), For256::Prepare()}) {
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }

  static cudaError_t Launch(const PagedWork& work, const AttentionLaunch& call) {
    switch (call.shape.head_dim) {
      case 64:
        return For64::Launch(work, call);
      case 128:
        return For128::Launch(work, call);
      case 256:
        return For256::Launch(work, call);
      default:
        return cudaErrorNotSupported;
    }
  }
};

// Tiles of 16 packed rows: one row with up to 16 heads per group, and four warps along the context.
// The shared memory that fp8 saves holds more positions at once.
template <class Kv, bool kCapped>
using RowTiles = ByHeadSize<PagedKernels<64, 16, 4, Kv, kCapped>,
                            PagedKernels<128, 16, kIsFp8<Kv> ? 4 : 2, Kv, kCapped>,
                            PagedKernels<256, 16, kIsFp8<Kv> ? 2 : 1, Kv, kCapped>>;

// Tiles of ChunkTile rows: four warps along the rows.
template <class Kv, bool kCapped>
using ChunkTiles = ByHeadSize<PagedKernels<64, 128, 4, Kv, kCapped>,
                              PagedKernels<128, 128, 4, Kv, kCapped>,
                              PagedKernels<256, 64, 4, Kv, kCapped>>;
template <class Kv, bool kCapped>
using RowsAloneTiles = ByHeadSize<RowsAloneKernel<64, 128, 4, Kv, kCapped>,
                                  RowsAloneKernel<128, 128, 4, Kv, kCapped>,
                                  RowsAloneKernel<256, 64, 4, Kv, kCapped>>;

template <class Tiles>
PagedKernelSet SetOf() {
  return {Tiles::Prepare, Tiles::Launch};
}
template <class Kv, bool kCapped>
PagedKernelSet SetOfForm(PagedForm form) {
  switch (form) {
    case PagedForm::kRows:
      return SetOf<RowTiles<Kv, kCapped>>();
    case PagedForm::kChunks:
      return SetOf<ChunkTiles<Kv, kCapped>>();
    case PagedForm::kChunkRowsAlone:
      break;
  }
  return SetOf<RowsAloneTiles<Kv, kCapped>>();
}

}  // namespace baton::cuda
