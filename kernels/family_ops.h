#pragma once

#include <cstdint>

#include "kernels/step_input.h"
#include "kernels/tensor.h"

namespace baton {

enum class Activation : uint8_t {
  kGelu,         // x · Φ(x)
  kGeluTanh,     // x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
  kSilu,         // x / (1 + e⁻ˣ)
  kSquaredRelu,  // max(x, 0)²
};

// The heads of q and k that a rank holds, among those of the model. Ranks may hold copies of a KV
// head: then only the first of these ranks owns it.
struct HeadPlace {
  HeadShape model;
  int32_t first_q_head = 0;
  int32_t first_kv_head = 0;
  bool owns_kv_heads = true;

  bool operator==(const HeadPlace&) const = default;
};

// The ops of a step that only some model families need (OpVariant). Ops::family_ops of the backend;
// called as other ops are, under the same conditions. A row's result never depends on other rows.
class FamilyOps {
 public:
  virtual ~FamilyOps() = default;

  // x *= factor.
  virtual void Scale(const Tensor& x, float factor) = 0;
  // out = (x − mean(x)) / √(variance(x) + epsilon) · w + b. `weight` is [w] or [w | b].
  virtual void LayerNorm(const Tensor& x,
                         const Vector& weight,
                         float epsilon,
                         const Tensor& out) = 0;
  // x = activation(scale · x).
  virtual void Activate(const Tensor& x, Activation activation, float scale) = 0;
  // x *= factors, element by element.
  virtual void Multiply(const Tensor& x, const Tensor& factors) = 0;
  // x = cap · tanh(x / cap).
  virtual void SoftCap(const Tensor& x, float cap) = 0;
  // x *= sigmoid(gate), where each row has one gate, or one for each number.
  virtual void MulSigmoid(const Tensor& x, const Tensor& gate) = 0;

  // The RMS norm of all heads of q together, and of k. It takes two ops, because ranks hold some
  // heads each: out[row] = Σ x² of each q head and each k head of the model; those of heads that
  // this rank does not hold or own become −0, which a sum over the ranks leaves unchanged.
  virtual void HeadSquares(const Tensor& qkv,
                           const HeadShape& heads,
                           const HeadPlace& place,
                           const Tensor& out) = 0;
  // Divides the held q heads of `qkv` by the root of the mean of all `squares` of q, and multiplies
  // them by their part of a weight; so for k. `weight` is [q of the held heads | k].
  virtual void NormProjections(const Tensor& qkv,
                               const Tensor& squares,
                               const HeadShape& heads,
                               const HeadPlace& place,
                               const Vector& weight,
                               float epsilon) = 0;
  // LayerNorm of each q and k head of `qkv`, with weights of its own: `weight` is [q | k] of the
  // held heads.
  virtual void HeadLayerNorm(const Tensor& qkv,
                             const HeadShape& heads,
                             const Vector& weight,
                             float epsilon) = 0;
};

}  // namespace baton
