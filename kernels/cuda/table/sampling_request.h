#pragma once

#include <cstdint>

#include "kernels/cuda/table/kernel_request.h"

// The request of sampling to the kernel table.
namespace baton::cuda {

// A logit and its token fit in one ordered key.
inline constexpr int64_t kMaxSampledTokens = 1 << 19;

inline KernelRequest SamplingRequest(int64_t vocabulary, bool deterministic) {
  KernelRequest request;
  request.op = KernelOp::kSampling;
  request.operands = Operands::kF32;
  request.deterministic = deterministic;
  request[Property::kRows] = 1;
  request[Property::kVocabulary] = vocabulary;
  return request;
}

}  // namespace baton::cuda
