#pragma once

#include <string>

#include "kernels/collective.h"

namespace baton {

struct CudaOptions {
  // The bits of a row's result do not depend on which other rows are in the step.
  bool deterministic = false;
  // Matrices that may be quantized are stored in FP8 (E4M3), and their GEMMs convert activations to
  // FP8, too, except for a single row and for experts with few rows.
  bool fp8_weights = false;
  // Only kernels that need nothing newer than sm_80 run (KernelFamily::kPortable).
  bool portable_kernels = false;
  // Decode steps run as CUDA graphs.
  bool graphs = true;
  // The folder that keeps choices made by timing between processes; empty: none is kept.
  std::string kernel_cache = {};
  // The groups of ranks in which this rank computes; they outlive the Ops.
  RankGroups groups = {};
};

}  // namespace baton
