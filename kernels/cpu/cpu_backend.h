#pragma once

#include <memory>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/ops.h"

namespace baton {

struct CpuOptions {
  int threads = 1;  // that compute, the caller of Ops included; 1 … 256
  CpuIsa isa = CpuIsa::kBest;
};

// The CPU backend's Ops on `device`, which must outlive it and all matrices loaded. Errors:
// InvalidArgument for a number of threads out of range or an instruction set this processor lacks.
StatusOr<std::unique_ptr<Ops>> MakeCpuOps(CpuDevice& device, const CpuOptions& options);

}  // namespace baton
