#include "kernels/cuda/table/latent_request.h"

namespace baton::cuda {
namespace {

KernelRequest RequestOf(KernelOp op, const LatentShape& shape, bool deterministic) {
  KernelRequest request;
  request.op = op;
  request.deterministic = deterministic;
  request[Property::kRows] = 1;
  request[Property::kHeadDim] = shape.width();
  request[Property::kLatentRank] = shape.rank;
  request[Property::kLatentHeads] = shape.heads;
  return request;
}

}  // namespace

KernelRequest LatentRequest(const LatentShape& shape,
                            DType kv,
                            int32_t block_tokens,
                            bool deterministic) {
  KernelRequest request = RequestOf(KernelOp::kLatents, shape, deterministic);
  request[Property::kBlockTokens] = block_tokens;
  request.operands = OperandsOf(kv);
  return request;
}

KernelRequest HeadGemmRequest(const LatentShape& shape, bool deterministic) {
  return RequestOf(KernelOp::kHeadGemms, shape, deterministic);
}

}  // namespace baton::cuda
