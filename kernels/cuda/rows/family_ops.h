#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <variant>

#include "kernels/family_ops.h"
#include "kernels/tensor.h"

// The ops that only some model families need, as data (step_ops.h): those of FamilyOps, and parts
// of a GEMM that GEMM kernels do not compute. They compute each row by itself. Weights and biases
// are on the device.
namespace baton::cuda {

// x *= factor.
struct ScaleOp {
  Tensor x;
  float factor = 1;
  bool operator==(const ScaleOp&) const = default;
};

struct LayerNormOp {
  Tensor x;  // the residual or another activation
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: none
  float epsilon = 0;
  Tensor out;
  bool operator==(const LayerNormOp&) const = default;
};

// x = activation(scale · x).
struct ActivateOp {
  Tensor x;
  Activation activation = Activation::kGelu;
  float scale = 1;
  bool operator==(const ActivateOp&) const = default;
};

// x *= factors, element by element.
struct MultiplyOp {
  Tensor x;
  Tensor factors;
  bool operator==(const MultiplyOp&) const = default;
};

// x = cap · tanh(x / cap).
struct SoftCapOp {
  Tensor x;
  float cap = 0;
  bool operator==(const SoftCapOp&) const = default;
};

// x *= sigmoid(gate), with one gate for a row or for each number.
struct SigmoidGateOp {
  Tensor x;
  Tensor gate;
  bool operator==(const SigmoidGateOp&) const = default;
};

// As FamilyOps::HeadSquares.
struct HeadSquaresOp {
  Tensor qkv;
  HeadShape heads = {};
  HeadPlace place = {};
  Tensor out;
  bool operator==(const HeadSquaresOp&) const = default;
};

// As FamilyOps::NormProjections.
struct ProjectionNormOp {
  Tensor qkv;
  Tensor squares;
  HeadShape heads = {};
  HeadPlace place = {};
  const float* weight = nullptr;
  float epsilon = 0;
  bool operator==(const ProjectionNormOp&) const = default;
};

// As FamilyOps::HeadLayerNorm.
struct HeadLayerNormOp {
  Tensor qkv;
  HeadShape heads = {};
  const float* weight = nullptr;
  float epsilon = 0;
  bool operator==(const HeadLayerNormOp&) const = default;
};

// x += bias, in float32: cuBLASLt adds biases only to results in bf16.
struct BiasOp {
  Tensor x;
  const float* bias = nullptr;
  bool operator==(const BiasOp&) const = default;
};

// A GEMM with one output, for which cuBLASLt has slow kernels alone. `out` is bf16.
struct DotOp {
  Tensor x;
  const __nv_bfloat16* weight = nullptr;
  Tensor out;
  bool operator==(const DotOp&) const = default;
};

using FamilyOp = std::variant<ScaleOp,
                              LayerNormOp,
                              ActivateOp,
                              MultiplyOp,
                              SoftCapOp,
                              SigmoidGateOp,
                              HeadSquaresOp,
                              ProjectionNormOp,
                              HeadLayerNormOp,
                              BiasOp,
                              DotOp>;

}  // namespace baton::cuda
