#include "kernels/cuda/attention_hopper.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention256(const RaggedWork& work, const AttentionCall& call) {
  return LaunchHopper<256>(work, call);
}

}  // namespace baton::cuda
