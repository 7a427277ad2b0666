#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dma.h"

namespace baton::cuda {

// A 2-D copy: `rows` runs of equal size at equal distances.
struct StridedCopy {
  CopyRun first;
  uint64_t source_pitch = 0;  // bytes from one run to the next
  uint64_t destination_pitch = 0;
  uint64_t rows = 1;
  bool operator==(const StridedCopy&) const = default;
};

// Plans the copies of `runs`, in the order of `runs`. Joins adjacent runs. Turns runs at equal
// distances into one 2-D copy if that saves calls.
std::vector<StridedCopy> PlanCopies(std::span<const CopyRun> runs);

// Who makes the copies. SMs copy only between memory of GPUs; copy engines make all copies that are
// not aligned (SuitsRowKernel).
enum class Copiers {
  kEngines,           // copy engines
  kEnginesAndSms,     // SMs copy short runs, copy engines the others
  kSms,               // SMs
  kSmsOneBlockPerSm,  // SMs with one thread block each, which leaves memory bandwidth to NCCL
};

// Issues the copies of `runs` from `from` to `to` on `stream`.
cudaError_t CopyRuns(const std::byte* from,
                     std::byte* to,
                     std::span<const CopyRun> runs,
                     Copiers copiers,
                     cudaStream_t stream);

}  // namespace baton::cuda
