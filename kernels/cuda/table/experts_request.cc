#include "kernels/cuda/table/experts_request.h"

#include <numeric>

namespace baton::cuda {

KernelRequest ExpertsRequest(const ExpertShape& shape, int64_t rows, bool deterministic) {
  KernelRequest request;
  request.op = KernelOp::kExperts;
  const bool fp8 = shape.gate_up == DType::kFp8 || shape.down == DType::kFp8;
  request.operands = fp8 ? Operands::kFp8 : Operands::kBf16;
  if (shape.packed) request.operands = Operands::kPacked;
  if (shape.bias) request.fusions |= SetOf(Fusion::kExpertBias);
  if (shape.clamped_gate) request.fusions |= SetOf(Fusion::kClampedGate);
  if (shape.ungated) request.fusions |= SetOf(Fusion::kUngated);
  if (shape.weighted_inputs) request.fusions |= SetOf(Fusion::kWeightedInputs);
  request.deterministic = deterministic;
  const auto row_bytes = [](DType dtype, int64_t cols) {
    return cols * (dtype == DType::kFp8 ? 1 : 2);
  };
  request[Property::kRows] = rows;
  request[Property::kPairs] = rows * shape.experts_per_token;
  request[Property::kWgmmaPairs] =
      (shape.packed ? kPackedWgmmaMeanRows : kWgmmaMeanRows) * shape.experts;
  request[Property::kExpertRowBytes] =
      std::gcd(row_bytes(shape.gate_up, shape.hidden), row_bytes(shape.down, shape.width));
  request[Property::kExpertSizes] = std::gcd(shape.hidden, shape.width);
  request[Property::kExperts] = shape.experts;
  request[Property::kExpertsOfRow] = shape.experts_per_token;
  return request;
}

KernelRequest ExpertScoresRequest(int64_t rows, bool deterministic) {
  KernelRequest request;
  request.op = KernelOp::kExpertScores;
  request.deterministic = deterministic;
  request[Property::kRows] = rows;
  return request;
}

}  // namespace baton::cuda
