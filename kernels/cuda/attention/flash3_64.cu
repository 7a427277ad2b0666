#include "kernels/cuda/attention/flash3.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention64(const RaggedWork& work, const AttentionLaunch& call) {
  return LaunchHopper<64>(work, call);
}

}  // namespace baton::cuda
