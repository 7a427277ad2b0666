#include "kernels/cuda/table/gemm_request.h"

namespace baton::cuda {

KernelRequest GemmRequest(const GemmShape& shape, bool deterministic) {
  KernelRequest request;
  request.op = KernelOp::kGemm;
  request.operands = shape.operands;
  request.fusions = shape.fusions;
  request.deterministic = deterministic;
  const bool fp8 = shape.operands == Operands::kFp8 || shape.operands == Operands::kFp8Scaled ||
                   shape.operands == Operands::kFp8Weight;
  const bool silu = (shape.fusions & SetOf(Fusion::kSiluMul)) != 0;
  request[Property::kRows] = shape.rows;
  request[Property::kOutputs] = shape.n;
  request[Property::kSiluOutputs] = silu ? shape.n : 0;
  request[Property::kInputs] = shape.k;
  request[Property::kInputBytes] = shape.k * (fp8 ? 1 : 2);
  request[Property::kOperandAlignment] = shape.operand_alignment;
  request[Property::kOutAlignment] = shape.out_alignment;
  return request;
}

std::vector<GemmForm> FormsOf(const ModelGemm& gemm, int64_t rows, bool deterministic) {
  const EnumSet silu = gemm.silu_mul ? SetOf(Fusion::kSiluMul) : 0;
  const EnumSet out = gemm.f32_out ? SetOf(Fusion::kF32Out) : 0;
  const EnumSet bias = gemm.bias ? SetOf(Fusion::kBias) : 0;
  std::vector<GemmForm> forms;
  const auto add = [&](Operands operands, EnumSet fusions, std::string_view others) {
    const GemmShape shape = {
        .rows = rows, .n = gemm.n, .k = gemm.k, .operands = operands, .fusions = fusions};
    forms.push_back({GemmRequest(shape, deterministic), others});
  };
  const auto add_with_silu = [&](Operands operands) {
    if (gemm.silu_mul) add(operands, out | bias | silu, "");
    add(operands, out | bias, gemm.silu_mul ? "silu · up" : "");
  };
  if (!gemm.fp8) {
    add_with_silu(Operands::kBf16);
    return forms;
  }
  add_with_silu(Operands::kFp8Weight);
  add_with_silu(Operands::kFp8Scaled);
  add(Operands::kFp8, out, gemm.silu_mul ? "scales, bias, silu · up" : "scales, bias");
  return forms;
}

}  // namespace baton::cuda
