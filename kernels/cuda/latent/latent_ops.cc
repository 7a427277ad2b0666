#include "kernels/cuda/latent/latent_ops.h"

#include <tuple>

namespace baton::cuda {
namespace {

// Whether both have equal values, or none.
template <class T>
bool SameValues(const std::shared_ptr<const T>& a, const std::shared_ptr<const T>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

bool HeadGemmOp::operator==(const HeadGemmOp& other) const {
  const auto rest = [](const HeadGemmOp& op) {
    return std::tie(op.x, op.x_head, op.out, op.out_head, op.n, op.k, op.rope_dim, op.angles);
  };
  return rest(*this) == rest(other) && SameValues(weights, other.weights);
}

bool AttendLatentsOp::operator==(const AttendLatentsOp& other) const {
  const auto rest = [](const AttendLatentsOp& op) {
    return std::tie(op.q, op.work, op.layer, op.out);
  };
  return rest(*this) == rest(other) && SameValues(plan, other.plan);
}

}  // namespace baton::cuda
