#include "kernels/cuda/step/listed_latent_ops.h"

#include <memory>

#include "common/base/check.h"
#include "kernels/cuda/device/matrix.h"

namespace baton::cuda {
namespace {

std::shared_ptr<const HeadPointers> PointersOf(HeadMatrices weights, int64_t n, int64_t k) {
  auto pointers = std::make_shared<HeadPointers>();
  pointers->reserve(weights.size());
  for (const std::unique_ptr<Matrix>& weight : weights) {
    const auto& matrix = static_cast<const CudaMatrix&>(*weight);
    BATON_CHECK(matrix.rows() == n && matrix.cols() == k && matrix.dtype() == DType::kBF16,
                "weights of a head of [{}][{}] in {}; [{}][{}] in bf16 expected",
                matrix.rows(),
                matrix.cols(),
                Name(matrix.dtype()),
                n,
                k);
    pointers->push_back(matrix.data());
  }
  return pointers;
}

void RefuseSparse() {
  BATON_CHECK(false, "sparse attention on a GPU; CheckModel refuses models that need it");
}

}  // namespace

LatentAngles ListedLatentOps::AnglesOf(const LatentRope& rope, int64_t rows) const {
  if (rope.inverse_frequencies == nullptr) return {};
  return {.at = step_.angles(*rope.inverse_frequencies, rope.magnitude, rows),
          .pairs = static_cast<int32_t>(rope.inverse_frequencies->size()),
          .pairing = rope.pairing};
}

void ListedLatentOps::WriteLatent(const Tensor& kv, const LatentKvArgs& args) {
  const Tensor padded = step_.pad(kv);
  const KvLayerPlace place = step_.place(args.layer);
  step_.add(WriteLatentOp{.kv = padded,
                          .rank = args.shape.rank,
                          .angles = AnglesOf(args.rope, padded.rows),
                          .norm = DataOf(args.norm),
                          .norm_epsilon = args.norm_epsilon,
                          .cache_group = place.group,
                          .layer = place.index});
}

void ListedLatentOps::AbsorbQueries(const Tensor& q,
                                    const LatentQueryArgs& args,
                                    const Tensor& out) {
  const LatentShape& shape = args.shape;
  const Tensor padded = step_.pad(q);
  step_.add(HeadGemmOp{.x = padded,
                       .x_head = shape.query_dim(),
                       .out = step_.pad(out),
                       .out_head = shape.width(),
                       .n = shape.rank,
                       .k = shape.nope_dim,
                       .weights = PointersOf(args.keys, shape.rank, shape.nope_dim),
                       .rope_dim = shape.rope_dim,
                       .angles = AnglesOf(args.rope, padded.rows)});
}

void ListedLatentOps::AttendLatents(const Tensor& q,
                                    const LatentAttentionArgs& args,
                                    const Tensor& out) {
  const KvLayerPlace place = step_.place(args.layer);
  step_.add(AttendLatentsOp{.q = step_.pad(q),
                            .work = {.shape = args.shape,
                                     .scale = args.scale,
                                     .cache_group = place.group,
                                     .only_logit_rows = args.only_logit_rows && !step_.recorded()},
                            .plan = nullptr,
                            .layer = place.index,
                            .out = step_.pad(out)});
}

void ListedLatentOps::ExpandValues(const Tensor& x,
                                   const LatentValueArgs& args,
                                   const Tensor& out) {
  const LatentShape& shape = args.shape;
  step_.add(HeadGemmOp{.x = step_.pad(x),
                       .x_head = shape.rank,
                       .out = step_.pad(out),
                       .out_head = shape.value_dim,
                       .n = shape.value_dim,
                       .k = shape.rank,
                       .weights = PointersOf(args.values, shape.value_dim, shape.rank)});
}

void ListedLatentOps::WriteIndexKeys(const Tensor& /*k*/, const IndexKeyArgs& /*args*/) {
  RefuseSparse();
}

void ListedLatentOps::SelectTokens(const Tensor& /*q*/,
                                   const Tensor& /*weights*/,
                                   const SelectArgs& /*args*/,
                                   const Tensor& /*out*/) {
  RefuseSparse();
}

void ListedLatentOps::AttendSelected(const Tensor& /*q*/,
                                     const Tensor& /*selected*/,
                                     const LatentAttentionArgs& /*args*/,
                                     const Tensor& /*out*/) {
  RefuseSparse();
}

}  // namespace baton::cuda
