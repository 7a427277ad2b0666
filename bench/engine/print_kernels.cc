#include "bench/engine/print_kernels.h"

#include <cstdio>
#include <vector>

#include "common/kernel_report/device_choice.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "kernels/backend.h"
#include "kernels/cuda/table/variant_check.h"

namespace baton {

Status PrintKernels(const KernelsSetup& setup, const KernelReportOptions& options) {
  BATON_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(setup.model));
  std::vector<KernelUse> uses;
  if (setup.device == kCpu) {
    BATON_ASSIGN_OR_RETURN(const CpuIsa isa, ParseCpuIsa(setup.cpu_isa));
    uses = {ReportCpuKernels(isa, options.max_rows)};
  } else {
    BATON_RETURN_IF_ERROR(cuda::CheckVariants(VariantsOf(spec)));
    BATON_ASSIGN_OR_RETURN(const ReportedGpu gpu, FindGpu(setup.device, setup.portable));
    uses = ReportKernels(spec, gpu.limits, options);
  }
  for (const KernelUse& use : uses) std::printf("%s\n", ToJson(use).dump().c_str());
  return OkStatus();
}

}  // namespace baton
