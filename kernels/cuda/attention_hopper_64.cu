#include "kernels/cuda/attention_hopper.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention64(const RaggedWork& work, const AttentionCall& call) {
  return LaunchHopper<64>(work, call);
}

}  // namespace baton::cuda
