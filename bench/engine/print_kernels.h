#pragma once

#include <string>

#include "common/base/status.h"
#include "common/kernel_report/kernel_report.h"

namespace baton {

struct KernelsSetup {
  std::string model = {};
  std::string device = {};  // "cpu" or "cuda:N"
  std::string cpu_isa = {};
  bool portable = false;  // engine.kernels
};

// Prints which kernels would compute a model's steps, a JSON object for each KernelUse. Errors:
// those of LoadModelSpec, ParseCpuIsa and FindGpu.
Status PrintKernels(const KernelsSetup& setup, const KernelReportOptions& options);

}  // namespace baton
