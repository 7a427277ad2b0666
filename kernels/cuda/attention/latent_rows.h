#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"

// The portable kernel and the combination of splits, for attention whose values are the first
// `rank` numbers of the keys (LatentOps). `out` is [rows][q heads · rank].
namespace baton::cuda {

inline constexpr int32_t kMaxHeadValues = 256;  // values of other attention have no more numbers
inline constexpr int32_t kMaxLatentRank = 512;
inline constexpr int32_t kPairsOfLatents = kMaxLatentRank / 64;

cudaError_t LaunchPortableLatents(const PortableWork& work,
                                  const AttentionLaunch& call,
                                  int32_t rank);
cudaError_t LaunchCombineLatents(const CombineWork& work,
                                 const AttentionLaunch& call,
                                 int32_t rank);

}  // namespace baton::cuda
