#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/cuda/dma/row_copy_kernel.h"

namespace baton::cuda {

// The most bytes of one launch, which takes the host 4 us or more. The kernels of a step wait only
// for the thread blocks that are on the SMs, because their stream has a higher priority.
constexpr uint64_t kRowCopyBytes = uint64_t{32} << 20;

// Whether the kernel can execute the copy: sizes, distances and addresses are aligned.
bool SuitsRowKernel(const StridedCopy& copy, const std::byte* from, const std::byte* to);

// The launches of the copies from `from` to `to`, each of at most kRowCopyBytes and
// RowCopyArgs::kMaxCopies copies.
std::vector<RowCopyArgs> PlanRowCopies(std::span<const StridedCopy> copies,
                                       const std::byte* from,
                                       std::byte* to);

}  // namespace baton::cuda
