#include "kernels/cuda/attention_hopper.cuh"

namespace baton::cuda {

cudaError_t LaunchHopperAttention128(const RaggedWork& work, const AttentionCall& call) {
  return LaunchHopper<128>(work, call);
}

}  // namespace baton::cuda
