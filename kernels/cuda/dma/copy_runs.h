#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dma.h"

namespace baton::cuda {

// `rows` runs of equal size at equal distances: one 2-D copy.
struct StridedCopy {
  CopyRun first;
  uint64_t source_pitch = 0;
  uint64_t destination_pitch = 0;
  uint64_t rows = 1;
  bool operator==(const StridedCopy&) const = default;
};

// The same copies as `runs`, in their order: neighbours joined, and those at equal distances
// together where that saves calls.
std::vector<StridedCopy> PlanCopies(std::span<const CopyRun> runs);

// Issues the copies from `from` to `to` on `stream`, for copy engines.
cudaError_t CopyRuns(const std::byte* from,
                     std::byte* to,
                     std::span<const CopyRun> runs,
                     cudaStream_t stream);

}  // namespace baton::cuda
