#pragma once

#include <array>

#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/table/gemm_request.h"
#include "kernels/cuda/table/kernel_table.h"

// Asks the kernel table which kernel computes a GEMM.
namespace baton::cuda {

GemmShape TableShapeOf(const GemmProblem& problem);

// The kernel of the table; KernelId::kCublas where it has none: cuBLASLt itself refuses what it
// cannot compute. Pure.
KernelId ChooseGemmKernel(const GemmProblem& problem,
                          const DeviceProperties& device,
                          bool deterministic = false);

// The same with a memory of the last choices, because a step asks several times for each of its
// GEMMs: 15 ns instead of up to 130. One thread.
class GemmChoices final {
 public:
  GemmChoices(const DeviceProperties& device, bool deterministic)
      : device_(device), deterministic_(deterministic) {}
  KernelId KernelOf(const GemmProblem& problem);
  // Whether cuBLASLt applies the scales of FP8 operands, if it gets them.
  bool CublasAppliesScales(const GemmProblem& problem);

 private:
  struct Choice {
    GemmShape shape;  // of no rows: nothing was chosen
    const KernelRule* rule = nullptr;
  };
  const KernelRule* RuleOf(const GemmShape& shape);

  const DeviceProperties device_;
  const bool deterministic_;
  std::array<Choice, 256> last_ = {};  // by a hash of the shape
};

// Whether it is a kernel of ours that may have operations fused into it.
constexpr bool FusesOps(KernelId kernel) {
  return kernel == KernelId::kGemv || kernel == KernelId::kSkinnyGemm ||
         kernel == KernelId::kGatedGemm || kernel == KernelId::kPackedGemm;
}

}  // namespace baton::cuda
