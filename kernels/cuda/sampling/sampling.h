#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/input/step_buffer.h"
#include "kernels/cuda/sampling/sampling_kernels.h"
#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// Chooses tokens on the device as kernels/sampling.h defines, with the same order of operations and
// the same random numbers as the CPU backend. Probabilities are summed as integers in units of
// 2⁻⁴⁵, so a row's token depends on that row alone. Owns scratch memory. Used by one thread, with
// one stream.
class Sampling final {
 public:
  static StatusOr<std::unique_ptr<Sampling>> Create();
  ~Sampling();

  // Writes the rows' parameters into `fixed` and their lists of tokens into `lists`. Rows from
  // rows.size() to `padded_rows` are padding. The masks of rows must be computed; `late` rows,
  // whose masks are not, get kLateToken. Must not be called while a graph is captured. Errors:
  // InvalidArgument for more than kMaxRows rows, a vocabulary above kMaxVocabulary or a list of
  // logprobs longer than kMaxCandidates; ResourceExhausted.
  StatusOr<SamplingPlan> Plan(std::span<const SamplingRow> rows,
                              int32_t padded_rows,
                              int32_t vocabulary,
                              StepBuffer& fixed,
                              StepBuffer& lists,
                              const std::vector<bool>& late = {});
  // Chooses a token for each row of `logits` (f32, overwritten) and stores it on the device, at
  // tokens(). Padding rows get token 0.
  cudaError_t Launch(const SamplingPlan& plan, const Tensor& logits, cudaStream_t stream);
  // Device address of the tokens that the last Launch chose, in row order. The address never
  // changes.
  int32_t* tokens();
  // Issues the copy of the last Launch's results to the host. That Launch must have used the last
  // Plan. `slot` (below kSlots) is the host buffer that receives them. Errors: ResourceExhausted.
  Status Fetch(size_t slot, cudaStream_t stream);
  // Reads the results that were fetched into `slot`; the stream must have finished that copy. `out`
  // has one entry for each row of the plan, without padding. A row in which no token has a positive
  // probability gets kNoToken.
  void Collect(size_t slot, std::span<SampledToken> out) const;

  static constexpr size_t kSlots = 8;  // as many steps are under way at most

 private:
  class Impl;
  explicit Sampling(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
