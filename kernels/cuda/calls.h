#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/quantize.h"
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/step_layout.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"

// The ops of a step as data. CudaOps writes them down while the decoder issues them; at the end of
// the step they are joined where one kernel can do the work of several, and run on a stream. A step
// whose list equals one that was captured into a CUDA graph replays that graph: the list is all
// there is to compare, so a graph never stands for other work than was asked for.
namespace baton::cuda {

struct EmbedCall {
  const CudaMatrix* table = nullptr;
  Tensor out;
  bool operator==(const EmbedCall&) const = default;
};

// out = x in E4M3.
struct QuantizeCall {
  Tensor x;
  QuantizedRows out;
  bool operator==(const QuantizeCall&) const = default;
};

// x = x · scales + bias: what a product of quantised operands lacks.
struct RescaleCall {
  Tensor x;
  ProductScales scales{};
  const __nv_bfloat16* bias = nullptr;
  bool operator==(const RescaleCall&) const = default;
};

// residual += delta · scales (when there is one), then out = norm of residual; in E4M3 when
// `quantized` has data.
struct NormCall {
  Tensor residual;
  Tensor delta;  // without data: none
  ProductScales delta_scales{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  QuantizedRows quantized{};
  bool operator==(const NormCall&) const = default;
};

struct MatMulCall {
  Product product;
  bool operator==(const MatMulCall&) const = default;
};

// out = silu(gate) · up of gate_up · scales = [gate | up]; in E4M3 when `quantized` has data.
struct SiluMulCall {
  Tensor gate_up;
  ProductScales scales{};
  Tensor out;
  QuantizedRows quantized{};
  bool operator==(const SiluMulCall&) const = default;
};

struct ExpertsCall {
  Tensor x;
  PreparedExperts experts;
  Tensor out;
  bool operator==(const ExpertsCall&) const = default;
};

// The cosines and sines that the rope calls behind it use.
struct AnglesCall {
  const float* inverse_frequencies = nullptr;
  int32_t pairs = 0;
  float magnitude = 1;
  float2* angles = nullptr;  // [rows][pairs]
  bool operator==(const AnglesCall&) const = default;
};

struct RopeCall {
  Tensor qkv;
  ProductScales scales{};  // of qkv, which they turn into what it stands for
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t pairs = 0;  // half of the dimensions that turn
  const float2* angles = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
  const float* kv_scales = nullptr;
  int32_t layer = 0;
  bool operator==(const RopeCall&) const = default;
};

struct AttendCall {
  Tensor qkv;
  AttentionPlan plan;  // until the end of the step only its shape
  int32_t layer = 0;
  const float* kv_scales = nullptr;
  Tensor out;
  Tensor packed;              // where the kernels write when `out` has gaps between its rows
  QuantizedRows quantized{};  // instead of `out`, when it has data
  bool operator==(const AttendCall&) const = default;
};

// out[i] = x[logit row i].
struct GatherCall {
  Tensor x;
  Tensor out;
  bool operator==(const GatherCall&) const = default;
};

struct SampleCall {
  Tensor logits;
  SamplingPlan plan;
  bool operator==(const SampleCall&) const = default;
};

// Marks that all calls before it are done, by event `index` of the step; recorded steps have no
// marks.
struct NotifyCall {
  size_t index = 0;
  bool operator==(const NotifyCall&) const = default;
};

using Call = std::variant<EmbedCall,
                          QuantizeCall,
                          RescaleCall,
                          NormCall,
                          MatMulCall,
                          SiluMulCall,
                          ExpertsCall,
                          AnglesCall,
                          RopeCall,
                          AttendCall,
                          GatherCall,
                          SampleCall,
                          NotifyCall>;

// Joins neighbours where one kernel does the work of both: what quantises the operand of a product
// with what wrote it, what rescales its result with what reads it; a product and the addition of
// its result to the residual; and, before and behind a product that `gemm` takes joined, the norm
// and silu · up. When `gemm` is deterministic, only what is joined for every number of rows: what
// is rounded would depend on the rows.
void Join(std::vector<Call>& calls, const Gemm& gemm);

// What running a call needs beside the call.
struct CallContext {
  const StepLayout& step;
  const KvView& kv;
  Gemm& gemm;
  Attention& attention;
  Experts& experts;
  Sampling& sampling;
  std::span<const cudaEvent_t> marks;
  cudaStream_t stream = nullptr;
};

// Whatever must be decided before `call` can be captured.
Status Prepare(const Call& call, const CallContext& context);

// Issues `call`. Errors: what the launch says.
cudaError_t Run(const Call& call, const CallContext& context);

}  // namespace baton::cuda
