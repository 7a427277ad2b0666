#pragma once

#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/family_ops.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// The ops of some model families, as plain loops over double-precision numbers: they are a small
// part of a step, and every instruction set gives the same bits. Exponentials are those of the
// kernel table. One thread at a time; bad arguments are bugs of the caller (CHECK).
class CpuFamilyOps final : public FamilyOps {
 public:
  // Both must outlive this object.
  CpuFamilyOps(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

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
  // Replaces each number x by make(x, e^exponent(x)).
  template <class ExponentOf, class Make>
  void WithPowers(const Tensor& x, const ExponentOf& exponent, const Make& make);

  const KernelTable& kernels_;
  ThreadPool& pool_;
};

}  // namespace baton::cpu
