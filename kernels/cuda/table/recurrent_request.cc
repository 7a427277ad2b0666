#include "kernels/cuda/table/recurrent_request.h"

namespace baton::cuda {

KernelRequest RecurrentRequest(const RecurrentShape& shape, bool deterministic) {
  KernelRequest request;
  request.op = shape.rule == RecurrentRule::kSelectiveScan ? KernelOp::kScan : KernelOp::kRecurrent;
  request.operands = Operands::kF32;
  request.deterministic = deterministic;
  request[Property::kRows] = 1;
  request[Property::kStateRows] = shape.key_dim;
  request[Property::kConvolvedInputs] = shape.kernel;
  return request;
}

}  // namespace baton::cuda
