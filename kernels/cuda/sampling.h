#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/sampling_kernels.h"
#include "kernels/cuda/step_buffer.h"
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
  // InvalidArgument for a vocabulary above kMostVocabulary or a list of logprobs above
  // kMostCandidates, ResourceExhausted.
  StatusOr<SamplingPlan> Plan(std::span<const SamplingRow> rows,
                              int32_t padded_rows,
                              int32_t vocabulary,
                              StepBuffer& fixed,
                              StepBuffer& lists);
  // Chooses a token for each row of `logits` (f32, overwritten), leaves it on the device (tokens())
  // and issues its copy to the host. Padding rows get token 0.
  cudaError_t Launch(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);
  // Device address of the tokens that the last Launch chose, in row order.
  const int32_t* tokens() const;
  // What the last Launch of a plan equal to the last Plan chose, once the stream is there. Errors:
  // Internal when a row had no token with a probability.
  Status Collect(std::span<const SamplingRow> rows, std::span<SampledToken> out) const;

 private:
  class Impl;
  explicit Sampling(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
