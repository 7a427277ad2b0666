#pragma once

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// Which operations of the ops around them GEMMs can do as well (FuseOps).
class GemmFusions {
 public:
  virtual ~GemmFusions() = default;
  // GemmOptions::deterministic.
  virtual bool deterministic() const = 0;
  // Whether one of our own kernels computes `problem`, with the operations that are fused into it
  // (GemmProblem's norm and silu_mul).
  virtual bool SupportsFused(const GemmProblem& problem) const = 0;
  // Whether cuBLASLt applies the scales of FP8 operands, if it gets them.
  virtual bool AppliesScales(const GemmProblem& problem) const = 0;
};

}  // namespace baton::cuda
