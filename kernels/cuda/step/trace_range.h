#pragma once

#include <nvtx3/nvtx3.hpp>

namespace baton::cuda {

// Names the host's work from here to the end of the scope in traces of Nsight Systems and similar
// tools (NVTX, domain "baton"). Costs almost nothing when no such tool is attached.
struct TraceDomain {
  static constexpr const char* name = "baton";  // NOLINT(readability-identifier-naming): nvtx3's
};
using TraceRange = nvtx3::scoped_range_in<TraceDomain>;

}  // namespace baton::cuda
