#include "kernels/cuda/attention/flash3.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention128(const RaggedWork& work, const AttentionLaunch& call) {
  return LaunchHopper<128>(work, call);
}

}  // namespace baton::cuda
