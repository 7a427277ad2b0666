#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/table/attention_request.h"

namespace baton {

// A GPU for a report of its kernels, and how the report names it.
struct ReportedGpu {
  cuda::DecodeLimits limits = {};
  std::string name = {};
};

// The architectures that TypicalGpu knows, the oldest first.
std::vector<std::string_view> TypicalArchitectures();

// A typical card of an architecture, "sm_90" for example, with numbers of SMs and resident clusters
// that are stated in its name. `portable`: engine.kernels. Errors: InvalidArgument, which names the
// architectures.
StatusOr<ReportedGpu> TypicalGpu(std::string_view architecture, bool portable);

// A GPU of this host, "cuda:0", by the CUDA backend at `cuda_library` (BackendOptions). Errors:
// those of DescribeGpu (kernels/describe_gpu.h).
StatusOr<ReportedGpu> FindGpu(const std::string& device,
                              bool portable,
                              const std::string& cuda_library = {});

}  // namespace baton
