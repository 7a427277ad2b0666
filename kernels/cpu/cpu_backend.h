#pragma once

#include <memory>

#include "kernels/collective.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/ops.h"

namespace baton {

struct CpuOptions {
  int threads = 1;  // compute threads, including the caller of Ops; 1 … 256
  CpuIsa isa = BestCpuIsa();
  RankGroups groups = {};  // outlive the Ops
  // kReduce: a row's bits depend on the number of ranks, as on GPUs that are
  // not deterministic.
  ExchangeMode exchange = ExchangeMode::kGather;
};

// Creates the Ops of the CPU backend on `device`, which must outlive them and all loaded matrices.
// Errors: InvalidArgument when the number of threads is out of range or when this processor does
// not support the instruction set.
StatusOr<std::unique_ptr<Ops>> MakeCpuOps(CpuDevice& device, const CpuOptions& options);

}  // namespace baton
