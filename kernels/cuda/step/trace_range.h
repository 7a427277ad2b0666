#pragma once

#include <nvtx3/nvtx3.hpp>

namespace baton::cuda {

// Names what the host does from here to the end of the block in the traces of Nsight Systems and
// the like (NVTX, domain "baton"). Costs next to nothing when no such tool is attached.
struct TraceDomain {
  static constexpr const char* name = "baton";  // NOLINT(readability-identifier-naming): nvtx3's
};
using TraceRange = nvtx3::scoped_range_in<TraceDomain>;

}  // namespace baton::cuda
