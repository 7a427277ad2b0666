#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dma.h"

namespace baton::cuda {

// `rows` runs of equal size at equal distances, which one 2-D copy moves.
struct StridedCopy {
  CopyRun first;
  uint64_t source_pitch = 0;
  uint64_t destination_pitch = 0;
  uint64_t rows = 1;
  bool operator==(const StridedCopy&) const = default;
};

// The copies of `runs`, in their order. Adjacent runs are joined, and runs at equal distances
// become one 2-D copy where that saves calls.
std::vector<StridedCopy> PlanCopies(std::span<const CopyRun> runs);

// Who copies: copy engines; copy engines, but SMs those runs that are too short for copy engines;
// SMs; or SMs with one thread block each, which leaves memory bandwidth to NCCL's kernels. SMs copy
// between GPUs' memory only. What is not aligned, copy engines copy.
enum class Copiers { kEngines, kEnginesAndSms, kSms, kSmsOneBlockEach };

// Issues the copies from `from` to `to` on `stream`.
cudaError_t CopyRuns(const std::byte* from,
                     std::byte* to,
                     std::span<const CopyRun> runs,
                     Copiers copiers,
                     cudaStream_t stream);

}  // namespace baton::cuda
