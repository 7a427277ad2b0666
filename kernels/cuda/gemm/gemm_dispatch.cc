#include "kernels/cuda/gemm/gemm_dispatch.h"

#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/gemm/skinny_gemm.h"

namespace baton::cuda {
namespace {

// The most rows of the skinny GEMM. With more rows it reads x too often. For a large k in bf16 it
// stays faster up to more rows, because it divides k among thread blocks better than cuBLASLt does.
constexpr int32_t kSkinnyRows = 32;
constexpr int32_t kSkinnyRowsOfLargeK = 64;

}  // namespace

GemmKernel ChooseGemmKernel(const GemmProblem& problem, const DeviceProperties& device) {
  if (!MayRun(KernelFamily::kHopper, device)) return GemmKernel::kCublas;
  if (GemvSupports(problem, device.block_shared_bytes)) return GemmKernel::kGemv;
  const bool large_k = problem.k >= 2 * problem.n && problem.weight_dtype == DType::kBF16;
  if (problem.rows <= (large_k ? kSkinnyRowsOfLargeK : kSkinnyRows) &&
      SkinnyGemmSupports(problem)) {
    return GemmKernel::kSkinny;
  }
  return problem.rows > kSkinnyRows && GatedGemmSupports(problem) ? GemmKernel::kGated
                                                                  : GemmKernel::kCublas;
}

}  // namespace baton::cuda
