#include "kernels/cuda/step/listed_family_ops.h"

#include "kernels/cuda/device/matrix.h"

namespace baton::cuda {
void ListedFamilyOps::Scale(const Tensor& x, float factor) {
  step_.add(ScaleOp{step_.pad(x), factor});
}

void ListedFamilyOps::LayerNorm(const Tensor& x,
                                const Vector& weight,
                                float epsilon,
                                const Tensor& out) {
  const bool has_bias = weight.size() == 2 * x.cols;
  step_.add(LayerNormOp{.x = step_.pad(x),
                        .weight = DataOf(&weight),
                        .bias = has_bias ? DataOf(&weight) + x.cols : nullptr,
                        .epsilon = epsilon,
                        .out = step_.pad(out)});
}

void ListedFamilyOps::Activate(const Tensor& x, Activation activation, float scale) {
  step_.add(ActivateOp{step_.pad(x), activation, scale});
}

void ListedFamilyOps::Multiply(const Tensor& x, const Tensor& factors) {
  step_.add(MultiplyOp{step_.pad(x), step_.pad(factors)});
}

void ListedFamilyOps::SoftCap(const Tensor& x, float cap) {
  step_.add(SoftCapOp{step_.pad(x), cap});
}

void ListedFamilyOps::MulSigmoid(const Tensor& x, const Tensor& gate) {
  step_.add(SigmoidGateOp{step_.pad(x), step_.pad(gate)});
}

void ListedFamilyOps::HeadSquares(const Tensor& qkv,
                                  const HeadShape& heads,
                                  const HeadPlace& place,
                                  const Tensor& out) {
  step_.add(HeadSquaresOp{step_.pad(qkv), heads, place, step_.pad(out)});
}

void ListedFamilyOps::NormProjections(const Tensor& qkv,
                                      const Tensor& squares,
                                      const HeadShape& heads,
                                      const HeadPlace& place,
                                      const Vector& weight,
                                      float epsilon) {
  step_.add(ProjectionNormOp{.qkv = step_.pad(qkv),
                             .squares = step_.pad(squares),
                             .heads = heads,
                             .place = place,
                             .weight = DataOf(&weight),
                             .epsilon = epsilon});
}

void ListedFamilyOps::HeadLayerNorm(const Tensor& qkv,
                                    const HeadShape& heads,
                                    const Vector& weight,
                                    float epsilon) {
  step_.add(HeadLayerNormOp{step_.pad(qkv), heads, DataOf(&weight), epsilon});
}

}  // namespace baton::cuda
