#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

#include "common/base/status.h"
#include "kernels/collective.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// ncclAllReduce, which the backend does not use, to compare times with. One thread.
class NcclAllReduce final {
 public:
  // Connects the ranks of `host`, which outlives the result, for the current device.
  static StatusOr<std::unique_ptr<NcclAllReduce>> Create(Collective& host);
  ~NcclAllReduce();
  NcclAllReduce(const NcclAllReduce&) = delete;

  // Replaces the numbers of `x`, which are bf16 without gaps, by the sum over the ranks.
  Status Launch(const Tensor& x, cudaStream_t stream) const;

 private:
  NcclAllReduce() = default;

  decltype(&ncclAllReduce) all_reduce_ = nullptr;
  decltype(&ncclCommAbort) abort_ = nullptr;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace baton::cuda
