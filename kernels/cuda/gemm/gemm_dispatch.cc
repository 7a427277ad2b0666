#include "kernels/cuda/gemm/gemm_dispatch.h"

#include <algorithm>

#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/packed_skinny.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/table/gemm_request.h"

namespace baton::cuda {
namespace {

// The largest power of two that divides `value`, up to GemmShape::kMaxAlignment.
constexpr int64_t AlignmentOf(uint64_t value) {
  return static_cast<int64_t>((value | GemmShape::kMaxAlignment) &
                              -(value | GemmShape::kMaxAlignment));
}

int64_t AlignmentOf(const void* pointer) {
  return AlignmentOf(reinterpret_cast<uintptr_t>(pointer));
}

Operands OperandsOf(const GemmProblem& problem) {
  if (problem.packed.is_packed()) return Operands::kPacked;
  const bool fp8_x = problem.x_dtype == DType::kFp8;
  const bool fp8_weight = problem.weight_dtype == DType::kFp8;
  if (!fp8_weight) return fp8_x ? Operands::kMixed : Operands::kBf16;
  if (!fp8_x) return Operands::kFp8Weight;
  const bool scaled = problem.x_scales != nullptr && problem.weight_scales != nullptr;
  return scaled ? Operands::kFp8Scaled : Operands::kFp8;
}

EnumSet FusionsOf(const GemmProblem& problem) {
  return (problem.bias != nullptr ? SetOf(Fusion::kBias) : 0) |
         (problem.norm_weight != nullptr ? SetOf(Fusion::kNorm) : 0) |
         (problem.silu_mul ? SetOf(Fusion::kSiluMul) : 0) |
         (problem.accumulate ? SetOf(Fusion::kAccumulate) : 0) |
         (problem.out_dtype == DType::kF32 ? SetOf(Fusion::kF32Out) : 0);
}

KernelRequest RequestOn(const DeviceProperties& device,
                        const GemmShape& shape,
                        bool deterministic) {
  KernelRequest request = GemmRequest(shape, deterministic);
  request[Property::kSms] = device.sm_count;
  return request;
}

KernelId KernelOfRule(const KernelRule* rule) {
  return rule == nullptr ? KernelId::kCublas : rule->kernel;
}

}  // namespace

GemmShape TableShapeOf(const GemmProblem& problem) {
  const auto bytes = static_cast<int64_t>(NumberBytes(problem));
  const auto out_bytes = static_cast<int64_t>(ShapeOf(problem.out_dtype).bytes);
  const auto x_stride = static_cast<uint64_t>(problem.x_stride * bytes);
  return {.rows = problem.rows,
          .n = problem.n,
          .k = problem.k,
          .operands = OperandsOf(problem),
          .fusions = FusionsOf(problem),
          .operand_alignment = std::min(
              {AlignmentOf(problem.x), AlignmentOf(problem.weight), AlignmentOf(x_stride)}),
          .out_alignment = std::min(AlignmentOf(problem.out) / out_bytes,
                                    AlignmentOf(static_cast<uint64_t>(problem.out_stride)))};
}

KernelId ChooseGemmKernel(const GemmProblem& problem,
                          const DeviceProperties& device,
                          bool deterministic) {
  return KernelOfRule(Choose(RequestOn(device, TableShapeOf(problem), deterministic), device));
}

KernelId GemmChoices::KernelOf(const GemmProblem& problem) {
  return KernelOfRule(RuleOf(TableShapeOf(problem)));
}

bool GemmChoices::CublasAppliesScales(const GemmProblem& problem) {
  GemmShape shape = TableShapeOf(problem);
  if (shape.operands == Operands::kFp8) shape.operands = Operands::kFp8Scaled;
  const KernelRule* const rule = RuleOf(shape);
  return rule != nullptr && rule->kernel == KernelId::kCublasScaled;
}

const KernelRule* GemmChoices::RuleOf(const GemmShape& shape) {
  const auto mixed = static_cast<uint64_t>(
      shape.n * 0x9E3779B1 + shape.k * 0x85EBCA77 + shape.rows * 0xC2B2AE3D +
      int64_t{shape.fusions} * 0x27D4EB2F + static_cast<int64_t>(shape.operands) * 0x165667B1);
  Choice& last = last_[(mixed >> 16) % std::size(last_)];
  if (shape.rows == 0 || !(last.shape == shape)) {
    last = {shape, Choose(RequestOn(device_, shape, deterministic_), device_)};
  }
  return last.rule;
}

bool SkinnyGemmSupports(const GemmProblem& problem) {
  return Computes(KernelId::kSkinnyGemm, GemmRequest(TableShapeOf(problem), false));
}

bool PackedGemmSupports(const GemmProblem& problem) {
  return Computes(KernelId::kPackedGemm, GemmRequest(TableShapeOf(problem), false));
}

bool GatedGemmSupports(const GemmProblem& problem) {
  return Computes(KernelId::kGatedGemm, GemmRequest(TableShapeOf(problem), false));
}

}  // namespace baton::cuda
