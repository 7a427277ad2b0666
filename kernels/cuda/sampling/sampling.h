#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/sampling/sampling_kernels.h"
#include "kernels/cuda/step/step_buffer.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Chooses tokens on the device as kernels/sampling.h says, with the CPU backend's order of
// operations and its random numbers. Probabilities are summed as integers of 2⁻⁴⁵, so a row's token
// depends on nothing but the row. Holds scratch memory; one thread, one stream.
class Sampling final {
 public:
  static StatusOr<std::unique_ptr<Sampling>> Create();
  ~Sampling();

  // Writes the rows' parameters into `fixed` and their lists of tokens into `lists`. Rows from
  // rows.size() to `padded_rows` are padding. Not while a graph is captured. Errors:
  // InvalidArgument for more than kMaxRows rows, a vocabulary above kMaxVocabulary or a list of
  // logprobs above kMaxCandidates, ResourceExhausted.
  StatusOr<SamplingPlan> Plan(std::span<const SamplingRow> rows,
                              int32_t padded_rows,
                              int32_t vocabulary,
                              StepBuffer& fixed,
                              StepBuffer& lists);
  // Chooses a token for each row of `logits` (f32, overwritten) and leaves it on the device
  // (tokens()). Padding rows get token 0.
  cudaError_t Launch(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);
  // Device address of the tokens that the last Launch chose, in row order; always the same.
  const int32_t* tokens() const;
  // Issues the copy to the host of what the last Launch chose, which was of the last Plan. `slot`:
  // which of kSlots places on the host takes it. Errors: ResourceExhausted.
  Status Fetch(size_t slot, cudaStream_t stream);
  // What was fetched into `slot`, once the stream is there; `out` has the plan's rows without
  // padding. kNoToken where no token had a probability.
  void Collect(size_t slot, std::span<SampledToken> out) const;

  static constexpr size_t kSlots = 2;

 private:
  class Impl;
  explicit Sampling(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
