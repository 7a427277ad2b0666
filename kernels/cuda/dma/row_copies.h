#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/cuda/dma/row_copy_kernel.h"

namespace baton::cuda {

// The bytes of one launch: about as much as moves on NVLink in 20 us. The thread blocks of one
// launch are on the SMs at the same time, so the kernels of a step do not wait longer for them.
constexpr uint64_t kRowCopyBytes = uint64_t{8} << 20;

// Whether the kernel can execute the copy: sizes, distances and addresses are aligned.
bool SuitsRowKernel(const StridedCopy& copy, const std::byte* from, const std::byte* to);

// The launches of the copies from `from` to `to`, each of at most kRowCopyBytes and
// RowCopyArgs::kMaxCopies copies.
std::vector<RowCopyArgs> PlanRowCopies(std::span<const StridedCopy> copies,
                                       const std::byte* from,
                                       std::byte* to);

}  // namespace baton::cuda
