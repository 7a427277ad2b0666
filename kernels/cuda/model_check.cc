#include "kernels/cuda/model_check.h"

#include <algorithm>

#include "kernels/cuda/experts_kernels.h"
#include "kernels/cuda/sampling_kernels.h"

namespace baton::cuda {
namespace {

constexpr int32_t kMostHeadDim = 256;
constexpr int32_t kExpertSizeMultiple = 8;

Status CheckExperts(const ModelShape& shape) {
  if (shape.experts > kMostExperts) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the number of experts is {}; the CUDA backend takes up to {}",
                      shape.experts,
                      kMostExperts);
  }
  if (shape.experts_per_token > kMostExpertsPerToken) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the number of experts per token is {}; the CUDA backend takes up to {}",
                      shape.experts_per_token,
                      kMostExpertsPerToken);
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
  if (shape.vocabulary > kMostVocabulary) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the vocabulary has {} tokens; the CUDA backend samples from up to {}",
                      shape.vocabulary,
                      kMostVocabulary);
  }
  const int32_t head_dim = shape.heads.head_dim;
  const int32_t multiple = shape.quantized_kv ? 16 : 8;
  if (head_dim < 1 || head_dim > kMostHeadDim || head_dim % multiple != 0) {
    return MakeStatus(
        StatusCode::kUnimplemented,
        "the head dimension is {}; the CUDA backend needs a multiple of {} up to {}{}",
        head_dim,
        multiple,
        kMostHeadDim,
        shape.quantized_kv ? " for a KV cache of fp8" : "");
  }
  return shape.experts == 0 ? OkStatus() : CheckExperts(shape);
}

}  // namespace baton::cuda
