#include "kernels/cuda/gemm/sequential_gemm.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/few_outputs_gemm.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/gemm/trial_numbers.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kInputSeed = 1;
constexpr uint32_t kOutputSeed = 2;
// Few rows of a very long k: the skinny GEMM, which leaves more of the ring to the weights.
constexpr int32_t kFewRows = 16;
constexpr int32_t kVeryLongK = 8192;
// With few rows, the barriers of a stage take longer than the stage's x.
constexpr int32_t kFewRowsStageBytes = 32 << 10;

Status FillFp8(const DeviceMemory& memory, size_t bytes, uint32_t seed, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes);
  return ToStatus(LaunchFillFp8(memory.at<__nv_fp8_e4m3>(), count, seed, stream),
                  "filling memory for trials");
}

Status Fill(const DeviceMemory& memory, size_t bytes, uint32_t seed, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes / sizeof(__nv_bfloat16));
  return ToStatus(LaunchFillNumbers(memory.at<__nv_bfloat16>(), count, seed, stream),
                  "filling memory for trials");
}

// The plan with which the kernel for few outputs computes `problem`; nothing when it cannot, or
// when the skinny GEMM is faster.
std::optional<FewOutputsPlan> PlanOfFewOutputs(const GemmProblem& problem, int sm_count) {
  if (problem.accumulate || problem.weight_dtype != DType::kBF16) return std::nullopt;
  if (problem.rows <= kFewRows && problem.k > kVeryLongK) return std::nullopt;
  return PlanFewOutputsGemm(problem, sm_count);
}

}  // namespace

bool SequentialGemmSupports(const GemmProblem& problem) {
  return Computes(KernelId::kSequentialGemm, GemmRequest(TableShapeOf(problem), true));
}

cudaError_t LaunchSequentialGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
  if (const auto plan = PlanOfFewOutputs(problem, sm_count)) {
    return LaunchFewOutputsGemm(problem, *plan, stream);
  }
  SkinnyLimits limits = FindSkinnyLimits(sm_count);
  limits.cluster = 1;
  limits.matrices = 1;  // one warp group
  if (problem.rows <= kFewRows) limits.stage_bytes = kFewRowsStageBytes;
  for (int32_t first = 0; first < problem.rows; first += kSkinnyMaxRows) {
    const GemmProblem slice =
        RowsOf(problem, first, std::min(problem.rows - first, kSkinnyMaxRows));
    const cudaError_t error = LaunchSkinnyGemm(slice, PlanSkinnyGemm(slice, limits), stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

StatusOr<std::unique_ptr<SequentialBits>> SequentialBits::Create(const GemmProblem& problem,
                                                                 int sm_count,
                                                                 cudaStream_t stream) {
  std::unique_ptr<SequentialBits> bits(new SequentialBits(problem, stream));
  const auto x_bytes = static_cast<size_t>(problem.rows * problem.x_stride * NumberBytes(problem));
  const size_t out_bytes = OutBytes(problem, problem.rows);
  BATON_RETURN_IF_ERROR(bits->x_.Reserve(x_bytes));
  BATON_RETURN_IF_ERROR(bits->want_.Reserve(out_bytes));
  BATON_RETURN_IF_ERROR(bits->out_.Reserve(out_bytes));
  BATON_RETURN_IF_ERROR(bits->differs_.Reserve(sizeof(uint32_t)));
  BATON_RETURN_IF_ERROR(problem.weight_dtype == DType::kFp8
                            ? FillFp8(bits->x_, x_bytes, kInputSeed, stream)
                            : Fill(bits->x_, x_bytes, kInputSeed, stream));
  BATON_RETURN_IF_ERROR(Fill(bits->want_, out_bytes, kOutputSeed, stream));
  bits->problem_.x = bits->x_.at();
  bits->problem_.out = bits->want_.at();
  BATON_CUDA_RETURN_IF_ERROR(LaunchSequentialGemm(bits->problem_, sm_count, stream));
  bits->problem_.out = bits->out_.at();
  return bits;
}

StatusOr<bool> SequentialBits::Match(int32_t rows, const Multiply& multiply) {
  GemmProblem trial = problem_;
  trial.rows = rows;
  const size_t bytes = OutBytes(trial, rows);
  // What `out` had before matters with `accumulate`.
  BATON_RETURN_IF_ERROR(Fill(out_, bytes, kOutputSeed, stream_));
  if (!multiply(trial)) return false;
  BATON_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(differs_.at(), 0, sizeof(uint32_t), stream_));
  BATON_CUDA_RETURN_IF_ERROR(LaunchFindDifference(want_.at<uint32_t>(),
                                                  out_.at<uint32_t>(),
                                                  static_cast<int64_t>(bytes / sizeof(uint32_t)),
                                                  differs_.at<uint32_t>(),
                                                  stream_));
  uint32_t differs = 0;
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&differs, differs_.at(), sizeof(differs), cudaMemcpyDeviceToHost, stream_));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  return differs == 0;
}

}  // namespace baton::cuda
