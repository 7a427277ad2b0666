#include "kernels/cuda/step/model_check.h"

#include <algorithm>

#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/sampling/sampling_kernels.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMaxHeadDim = 256;
constexpr int32_t kExpertSizeMultiple = 8;

Status CheckExperts(const ModelShape& shape) {
  if (shape.experts > kMaxExperts) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the number of experts is {}; the CUDA backend takes up to {}",
                      shape.experts,
                      kMaxExperts);
  }
  if (shape.experts_per_token > kMaxExpertsPerToken) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the number of experts per token is {}; the CUDA backend takes up to {}",
                      shape.experts_per_token,
                      kMaxExpertsPerToken);
  }
  for (const int32_t size : {shape.hidden, shape.expert_width}) {
    if (size % kExpertSizeMultiple == 0) continue;
    return MakeStatus(StatusCode::kUnimplemented,
                      "the hidden size is {} and that of an expert {}; the CUDA backend needs "
                      "multiples of {} in a mixture of experts",
                      shape.hidden,
                      shape.expert_width,
                      kExpertSizeMultiple);
  }
  return OkStatus();
}

}  // namespace

Status CheckModel(const ModelShape& shape) {
  if (shape.vocabulary > kMaxVocabulary) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the vocabulary has {} tokens; the CUDA backend samples from up to {}",
                      shape.vocabulary,
                      kMaxVocabulary);
  }
  const int32_t head_dim = shape.heads.head_dim;
  const int32_t multiple = shape.fp8_kv ? 16 : 8;
  if (head_dim < 1 || head_dim > kMaxHeadDim || head_dim % multiple != 0) {
    return MakeStatus(
        StatusCode::kUnimplemented,
        "the head dimension is {}; the CUDA backend needs a multiple of {} up to {}{}",
        head_dim,
        multiple,
        kMaxHeadDim,
        shape.fp8_kv ? " for a KV cache of fp8" : "");
  }
  return shape.experts == 0 ? OkStatus() : CheckExperts(shape);
}

}  // namespace baton::cuda
