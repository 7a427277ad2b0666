#include "kernels/cuda/gemm/sequential_gemm.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/gemm/few_outputs_gemm.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/gemm/portable_gemm.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/gemm/trial_numbers.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kOutputSeed = 0;
// Outputs that are compared at least, in several trials where one has fewer.
constexpr int64_t kComparedOutputs = 1 << 16;
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

size_t XBytes(const GemmProblem& problem) {
  return static_cast<size_t>(problem.rows * problem.x_stride * NumberBytes(problem));
}

// The plan with which the kernel for few outputs computes `problem`; nothing when it cannot, or
// when the skinny GEMM is faster.
std::optional<FewOutputsPlan> PlanOfFewOutputs(const GemmProblem& problem, int sm_count) {
  if (problem.accumulate || problem.weight_dtype != DType::kBF16) return std::nullopt;
  if (problem.rows <= kFewRows && problem.k > kVeryLongK) return std::nullopt;
  return PlanFewOutputsGemm(problem, sm_count);
}

cudaError_t LaunchOnHopper(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
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

}  // namespace

std::optional<KernelId> SequentialKernel(const GemmProblem& problem,
                                         const DeviceProperties& device) {
  const KernelRequest request = GemmRequest(TableShapeOf(problem), true);
  for (const KernelId kernel :
       {KernelId::kSequentialGemm, KernelId::kPortableGemm, KernelId::kPortableFp8Gemm}) {
    if (Runs(kernel, request, device)) return kernel;
  }
  return std::nullopt;
}

cudaError_t LaunchSequentialGemm(const GemmProblem& problem,
                                 const DeviceProperties& device,
                                 cudaStream_t stream) {
  const std::optional<KernelId> kernel = SequentialKernel(problem, device);
  if (!kernel.has_value()) return cudaErrorNotSupported;
  return *kernel == KernelId::kSequentialGemm ? LaunchOnHopper(problem, device.sm_count, stream)
                                              : LaunchPortableGemm(problem, stream);
}

StatusOr<std::unique_ptr<SequentialBits>> SequentialBits::Create(const GemmProblem& problem,
                                                                 const DeviceProperties& device,
                                                                 cudaStream_t stream) {
  std::unique_ptr<SequentialBits> bits(new SequentialBits(problem, device, stream));
  const size_t out_bytes = OutBytes(problem, problem.rows);
  BATON_RETURN_IF_ERROR(bits->x_.Reserve(XBytes(problem)));
  BATON_RETURN_IF_ERROR(bits->want_.Reserve(out_bytes));
  BATON_RETURN_IF_ERROR(bits->out_.Reserve(out_bytes));
  BATON_RETURN_IF_ERROR(bits->differs_.Reserve(sizeof(uint32_t)));
  bits->problem_.x = bits->x_.at();
  return bits;
}

Status SequentialBits::Want(int32_t rows, uint32_t seed) {
  if (seed == wanted_seed_ && rows <= wanted_rows_) return OkStatus();
  GemmProblem problem = problem_;
  problem.rows = rows;
  problem.out = want_.at();
  BATON_RETURN_IF_ERROR(problem.weight_dtype == DType::kFp8
                            ? FillFp8(x_, XBytes(problem), seed, stream_)
                            : Fill(x_, XBytes(problem), seed, stream_));
  // What `out` had before matters with `accumulate`.
  BATON_RETURN_IF_ERROR(Fill(want_, OutBytes(problem, rows), kOutputSeed, stream_));
  BATON_CUDA_RETURN_IF_ERROR(LaunchSequentialGemm(problem, device_, stream_));
  wanted_seed_ = seed;
  wanted_rows_ = rows;
  return OkStatus();
}

StatusOr<bool> SequentialBits::Compare(int32_t rows, uint32_t seed, const Multiply& multiply) {
  BATON_RETURN_IF_ERROR(Want(rows, seed));
  GemmProblem problem = problem_;
  problem.rows = rows;
  problem.out = out_.at();
  const size_t bytes = OutBytes(problem, rows);
  BATON_RETURN_IF_ERROR(Fill(out_, bytes, kOutputSeed, stream_));
  if (!multiply(problem)) return false;
  BATON_CUDA_RETURN_IF_ERROR(LaunchFindDifference(want_.at<uint32_t>(),
                                                  out_.at<uint32_t>(),
                                                  static_cast<int64_t>(bytes / sizeof(uint32_t)),
                                                  differs_.at<uint32_t>(),
                                                  stream_));
  return true;
}

StatusOr<bool> SequentialBits::Match(int32_t rows, const Multiply& multiply) {
  BATON_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(differs_.at(), 0, sizeof(uint32_t), stream_));
  uint32_t seed = kOutputSeed;
  for (int64_t compared = 0; compared < kComparedOutputs; compared += int64_t{rows} * problem_.n) {
    BATON_ASSIGN_OR_RETURN(const bool works, Compare(rows, ++seed, multiply));
    if (!works) return false;
  }
  uint32_t differs = 0;
  BATON_CUDA_RETURN_IF_ERROR(
      cudaMemcpyAsync(&differs, differs_.at(), sizeof(differs), cudaMemcpyDeviceToHost, stream_));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_));
  return differs == 0;
}

}  // namespace baton::cuda
