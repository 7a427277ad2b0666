#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/step_buffer.h"
#include "kernels/kv_view.h"
#include "kernels/step_input.h"

namespace baton::cuda {

// Copies whole blocks of KV memory. Owns the list that the kernel reads; one thread.
class BlockCopier final {
 public:
  static StatusOr<std::unique_ptr<BlockCopier>> Create();

  // As Ops::CopyBlocks: as if one copy after the other; done when it returns. Errors:
  // InvalidArgument for a block outside `kv`.
  Status Copy(const KvView& kv, std::span<const BlockCopy> copies, cudaStream_t stream);

 private:
  BlockCopier() = default;
  std::unique_ptr<StepBuffer> list_;
};

}  // namespace baton::cuda
