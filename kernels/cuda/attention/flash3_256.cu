#include "kernels/cuda/attention/flash3.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention256(const RaggedWork& work, const AttentionLaunch& call) {
  return LaunchHopper<256>(work, call);
}

}  // namespace baton::cuda
