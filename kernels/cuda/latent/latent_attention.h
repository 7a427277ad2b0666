#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/attention/work_tiles.h"
#include "kernels/cuda/device/scratch_memory.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/input/step_layout.h"
#include "kernels/cuda/latent/latent_plan.h"
#include "kernels/cuda/table/architecture.h"
#include "kernels/kv_view.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Attention of decoding rows and prompt chunks to latents, all in the same way: a work tile is a
// row and a part of its context. Owns scratch memory on the device, which only grows. One thread,
// one stream.
class LatentAttention final {
 public:
  // `device` is the current one. Errors: those of CUDA.
  static StatusOr<std::unique_ptr<LatentAttention>> Create(const DeviceProperties& device,
                                                           bool deterministic);

  // As Attention::Plan. Errors: InvalidArgument for a cache that does not fit the shape,
  // ResourceExhausted.
  StatusOr<LatentPlan> Plan(const LatentWork& work,
                            const StepLayout& step,
                            const KvView& kv,
                            StepBuffer& fixed);
  // `q` is [rows][heads][width] and `out` [rows][heads][rank], in bf16 without gaps between heads.
  cudaError_t Launch(const LatentPlan& plan,
                     const KvView& kv,
                     int32_t layer,
                     const Tensor& q,
                     const Tensor& out,
                     cudaStream_t stream);

 private:
  LatentAttention(const DeviceProperties& device, bool deterministic)
      : device_(device), deterministic_(deterministic) {}
  // How contexts are split. With tiles, so that all SMs have work.
  PortableLimits LimitsOf(const LatentPlan& plan,
                          const std::vector<AttentionSequence>& sequences,
                          const StepLayout& step) const;

  const DeviceProperties device_;
  const bool deterministic_;
  ScratchMemory partial_;
  PortableTiles tiles_;
};

}  // namespace baton::cuda
