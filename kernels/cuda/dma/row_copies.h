#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/cuda/dma/row_copy_kernel.h"

namespace baton::cuda {

// The maximum number of bytes of one launch. Launches are large because each takes the host 4 us or
// more. This does not delay a step: its stream has a higher priority, so its kernels wait only for
// the thread blocks that already run.
constexpr uint64_t kMaxLaunchBytes = uint64_t{32} << 20;

// Whether the kernel can make the copy: its sizes, pitches and addresses are aligned.
bool SuitsRowKernel(const StridedCopy& copy, const std::byte* from, const std::byte* to);

// Divides the copies from `from` to `to` into launches. Each launch has at most kMaxLaunchBytes
// bytes and RowCopyArgs::kMaxCopies copies.
std::vector<RowCopyArgs> PlanRowCopies(std::span<const StridedCopy> copies,
                                       const std::byte* from,
                                       std::byte* to);

}  // namespace baton::cuda
