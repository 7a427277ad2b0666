#include "kernels/cuda/table/model_check.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/table/attention_request.h"
#include "kernels/cuda/table/experts_request.h"
#include "kernels/cuda/table/gemm_request.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/latent_request.h"
#include "kernels/cuda/table/sampling_request.h"
#include "kernels/cuda/table/variant_check.h"

namespace baton::cuda {
namespace {

constexpr int32_t kBlockTokens = 16;

KvView KvOf(const ModelShape& shape) {
  KvView kv;
  kv.dtype = shape.fp8_kv ? DType::kFp8 : DType::kBF16;
  kv.kv_heads = shape.heads.kv_heads;
  kv.head_dim = shape.heads.head_dim;
  kv.block_tokens = kBlockTokens;
  kv.head_stride =
      int64_t{kBlockTokens} * shape.heads.head_dim * static_cast<int64_t>(ShapeOf(kv.dtype).bytes);
  kv.block_stride = 2 * kv.head_stride * shape.heads.kv_heads;
  return kv;
}

}  // namespace

Status CheckModel(const ModelShape& shape, const DeviceProperties& device, bool deterministic) {
  BATON_RETURN_IF_ERROR(CheckVariants(shape.variants));
  const auto needs = [&](OpVariant variant) {
    return std::ranges::find(shape.variants, variant) != shape.variants.end();
  };
  const AttentionHeads heads = {.q_heads = shape.heads.q_heads,
                                .kv_heads = shape.heads.kv_heads,
                                .head_dim = shape.heads.head_dim,
                                .soft_cap = needs(OpVariant::kSoftCap),
                                .sinks = needs(OpVariant::kAttentionSinks),
                                .chunks = needs(OpVariant::kChunkedAttention)};
  const GemmShape head = {.rows = 1, .n = shape.vocabulary, .k = shape.hidden};
  std::vector<KernelRequest> requests = {GemmRequest(head, deterministic),
                                         SamplingRequest(shape.vocabulary, deterministic)};
  if (shape.latent.rank > 0) {
    const DType kv = shape.fp8_kv ? DType::kFp8 : DType::kBF16;
    requests.push_back(LatentRequest(shape.latent, kv, kBlockTokens, deterministic));
    requests.push_back(HeadGemmRequest(shape.latent, deterministic));
  } else {
    requests.push_back(FewRowsRequest(heads, KvOf(shape), deterministic));
  }
  if (shape.experts > 0) {
    const ExpertShape experts = {.experts = shape.experts,
                                 .experts_per_token = shape.experts_per_token,
                                 .hidden = shape.hidden,
                                 .width = shape.expert_width,
                                 .bias = needs(OpVariant::kExpertBias),
                                 .clamped_gate = needs(OpVariant::kClampedGate),
                                 .ungated = needs(OpVariant::kUngatedExperts),
                                 .weighted_inputs = needs(OpVariant::kWeightedInputs)};
    requests.push_back(ExpertScoresRequest(1, deterministic));
    requests.push_back(ExpertsRequest(experts, 1, deterministic));
  }
  for (const KernelRequest& request : requests) {
    BATON_RETURN_IF_ERROR(CheckChoice(request, device));
  }
  return OkStatus();
}

}  // namespace baton::cuda
