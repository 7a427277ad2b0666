#pragma once

#include <cutlass/numeric_types.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/logits.cuh"
#include "kernels/cuda/attention/mma_operands.cuh"

// FlashInfer's FlashAttention-3 kernel over contiguous K and V (flashinfer/attention/hopper), with
// our own work lists and epilogue.
namespace baton::cuda {

// Transposes 4 × 4 words over the four lanes of a quad: lane i gets the whole of row i.
__device__ __forceinline__ void TransposeQuad(uint32_t (&words)[4]) {
  const auto lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool second = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const uint32_t given = second ? words[i] : words[i + step];
      const uint32_t taken = __shfl_xor_sync(~0u, given, step);
      words[i] = second ? taken : words[i];
      words[i + step] = second ? words[i + step] : taken;
    }
  }
}

// A FlashInfer variant with capped logits (AttentionArgs::cap).
struct HopperCappedAttention {
  float scale;  // times kLog2E, as `cap`
  float cap;

  template <class MainloopParams, class Place>
  __device__ HopperCappedAttention(const MainloopParams& params, const Place& /*not needed*/)
      : scale(params.additional_params.sm_scale * kLog2E),
        cap(params.additional_params.logits_soft_cap * kLog2E) {}

  template <int kRows>
  __device__ auto GetAttentionUpdater() {
    return flashinfer::OnlineSoftmax<kRows, /*WITH_SCALE=*/false>(1.0f);
  }

  REGISTER_LOGITS_TRANSFORM(params, logits, batch_idx, qo_idx, kv_idx, qo_head_idx, kv_head_idx, {
    return Capped(logits * scale, cap);
  })
};

// Stores results straight from registers, after the heads' sinks have joined the sums.
//
// FlashInfer's own epilogue (0.7.2) stages them in the shared memory of V and counts every thread
// twice at the barrier in between: once as it arrives and once as it waits. Half of the warps then
// open the barrier and read data that other warps have not written yet. With heads of 256
// dimensions it also lets the next tile's V overwrite data that warps still read.
template <class Traits>
struct HopperEpilogue : flashinfer::CollectiveEpilogue<Traits> {
  using Base = flashinfer::CollectiveEpilogue<Traits>;
  struct Params : Base::Params {
    const float* sinks;  // AttentionArgs::sinks, or null
  };

  // Called by the consumer warps; `thread` counts their threads. Each warp has 16 rows of the tile,
  // each lane two rows: in every eight columns a pair per row (wgmma.cuh).
  template <class Place, class Accumulators, class Lse, class Shared, class TiledMma>
  __device__ __forceinline__ void store(const Params& params,
                                        const Accumulators& accumulators,
                                        const Lse& lse,
                                        Shared& /*not needed*/,
                                        TiledMma /*its layout is known*/,
                                        int thread,
                                        const Place& place) {
    constexpr int kColumns = Traits::HEAD_DIM_VO;
    static_assert(decltype(cute::size(accumulators))::value == kColumns / 2);
    const auto [query_tile, q_head, kv_head, query_start, key_start, queries, keys, sequence] =
        place;
    const auto strides = params.layout_O.stride();  // of tokens, dimensions and heads
    const int lane = thread % 32;
    const int first = query_tile * Traits::CTA_Q + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + half * 8;
      const float factor =
          params.sinks == nullptr ? 1.0f : 1 / (1 + SinkTerm(params.sinks[q_head], lse(half)));
      cutlass::bfloat16_t* const to = params.O_ptr + (query_start + row) * cute::get<0>(strides) +
                                      q_head * cute::get<2>(strides) + lane % 4 * 8;
#pragma unroll
      for (int column = 0; column < kColumns; column += 32) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (column / 8 + i) * 4 + half * 2;
          pairs[i] =
              PackPair</*kHalves=*/false>(accumulators(at) * factor, accumulators(at + 1) * factor);
        }
        TransposeQuad(pairs);
        if (row < queries) {
          *reinterpret_cast<uint4*>(to + column) =
              make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
      }
    }
  }
};

template <int kHeadDim, bool kCapped>
cudaError_t LaunchHopperVariant(const RaggedWork& work, const AttentionLaunch& call) {
  using Bf16 = cutlass::bfloat16_t;
  using Params = flashinfer::BatchPrefillRaggedParams<Bf16, Bf16, Bf16, int32_t>;
  using Variant = std::conditional_t<kCapped,
                                     HopperCappedAttention,
                                     flashinfer::DefaultAttention</*use_logits_soft_cap=*/false>>;
  constexpr auto kTile = flashinfer::getCTATileSize<kHeadDim, kHeadDim, /*CAUSAL=*/true>();
  static_assert(std::get<0>(kTile) == HopperTile(kHeadDim));
  using Traits = flashinfer::AttentionKernelTraits</*USE_TMA_LOAD_KV=*/true,
                                                   kHeadDim,
                                                   kHeadDim,
                                                   std::get<0>(kTile),
                                                   std::get<1>(kTile),
                                                   /*NUM_STAGES_=*/2,
                                                   Bf16,
                                                   Bf16,
                                                   Bf16,
                                                   int32_t,
                                                   Variant>;
  using Mainloop =
      flashinfer::CollectiveMainloop<Params::AdditionalParams, Traits, /*CAUSAL=*/true>;
  using Epilogue = HopperEpilogue<Traits>;
  using Scheduler = flashinfer::BatchPrefillPersistentTileScheduler<int32_t>;

  const AttentionShape& shape = call.shape;
  auto* const q = reinterpret_cast<Bf16*>(call.qkv.data);
  const auto layout = [](int tokens, int heads, int64_t token_stride, int64_t head_stride) {
    return flashinfer::get_gmem_layout(tokens, heads, kHeadDim, token_stride, head_stride);
  };
  Bf16* k = q + int64_t{shape.q_heads} * kHeadDim;
  Bf16* v = k + int64_t{shape.kv_heads} * kHeadDim;
  auto kv_layout = layout(work.row_count, shape.kv_heads, call.qkv.stride, kHeadDim);
  if (work.gather.sequences > 0) {
    const int64_t head_stride = int64_t{work.gather.tokens} * kHeadDim;
    k = reinterpret_cast<Bf16*>(work.gather.to);
    v = k + shape.kv_heads * head_stride;
    kv_layout = layout(work.gather.tokens, shape.kv_heads, kHeadDim, head_stride);
  }
  Params::AdditionalParams additional = {};
  additional.sm_scale = shape.scale;
  additional.logits_soft_cap = shape.cap;
  const auto mainloop = Mainloop::to_underlying_arguments(
      {q,
       layout(work.row_count, shape.q_heads, call.qkv.stride, kHeadDim),
       k,
       kv_layout,
       v,
       kv_layout,
       /*window_left=*/-1,
       additional});
  const typename Epilogue::Params epilogue{
      {reinterpret_cast<Bf16*>(call.out.data),
       layout(work.row_count, shape.q_heads, call.out.stride, kHeadDim),
       /*lse_ptr=*/nullptr,
       flashinfer::get_lse_gmem_layout(work.row_count, shape.q_heads)},
      call.sinks};
  const auto list = [](const int32_t* p) { return const_cast<int32_t*>(p); };
  const auto scheduler = Scheduler::to_underlying_arguments({list(work.starts),
                                                             list(work.head),
                                                             list(work.query_tile),
                                                             list(work.query_start),
                                                             list(work.key_start),
                                                             list(work.query_rows),
                                                             list(work.keys),
                                                             list(work.sequence),
                                                             cutlass::FastDivmod(shape.group()),
                                                             shape.q_heads});
  const auto kernel = flashinfer::PrefillWithKVCacheKernel<Mainloop,
                                                           Epilogue,
                                                           Traits,
                                                           /*LEFT_SLIDING_WINDOW=*/false,
                                                           /*CAUSAL=*/true,
                                                           Scheduler>;
  constexpr int kShared = sizeof(typename Traits::SharedStorage);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  kernel<<<work.blocks, Traits::NUM_THREADS, kShared, call.stream>>>(mainloop, epilogue, scheduler);
  return cudaGetLastError();
}

template <int kHeadDim>
cudaError_t LaunchHopper(const RaggedWork& work, const AttentionLaunch& call) {
  return call.shape.cap > 0 ? LaunchHopperVariant<kHeadDim, true>(work, call)
                            : LaunchHopperVariant<kHeadDim, false>(work, call);
}

}  // namespace baton::cuda
