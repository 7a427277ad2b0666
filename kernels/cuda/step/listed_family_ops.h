#pragma once

#include <functional>
#include <utility>

#include "kernels/cuda/rows/family_ops.h"
#include "kernels/family_ops.h"

namespace baton::cuda {

// Adds the ops of FamilyOps to the step's list of ops. Owned by CudaOps; one thread.
class ListedFamilyOps final : public FamilyOps {
 public:
  // The step whose ops are being listed.
  struct Step {
    // Pads the rows of a tensor as for the step's other ops.
    std::function<Tensor(const Tensor&)> pad;
    // Appends an op to the list.
    std::function<void(const FamilyOp&)> add;
  };

  explicit ListedFamilyOps(Step step) : step_(std::move(step)) {}

  void Scale(const Tensor& x, float factor) override;
  void LayerNorm(const Tensor& x, const Vector& weight, float epsilon, const Tensor& out) override;
  void Activate(const Tensor& x, Activation activation, float scale) override;
  void Multiply(const Tensor& x, const Tensor& factors) override;
  void SoftCap(const Tensor& x, float cap) override;
  void MulSigmoid(const Tensor& x, const Tensor& gate) override;
  void HeadSquares(const Tensor& qkv,
                   const HeadShape& heads,
                   const HeadPlace& place,
                   const Tensor& out) override;
  void NormProjections(const Tensor& qkv,
                       const Tensor& squares,
                       const HeadShape& heads,
                       const HeadPlace& place,
                       const Vector& weight,
                       float epsilon) override;
  void HeadLayerNorm(const Tensor& qkv,
                     const HeadShape& heads,
                     const Vector& weight,
                     float epsilon) override;

 private:
  const Step step_;
};

}  // namespace baton::cuda
