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

// residual += delta (when there is one), then out = norm of residual.
struct NormCall {
  Tensor residual;
  Tensor delta;  // without data: none
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  bool operator==(const NormCall&) const = default;
};

struct MatMulCall {
  Product product;
  bool operator==(const MatMulCall&) const = default;
};

// out = silu(gate) · up of gate_up = [gate | up].
struct SiluMulCall {
  Tensor gate_up;
  Tensor out;
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
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t pairs = 0;  // half of the dimensions that turn
  const float2* angles = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
  int32_t layer = 0;
  bool operator==(const RopeCall&) const = default;
};

struct AttendCall {
  Tensor qkv;
  AttentionPlan plan;  // until the end of the step only its shape
  int32_t layer = 0;
  Tensor out;
  Tensor packed;  // where the kernels write when `out` has gaps between its rows
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

// Joins neighbours where one kernel does the work of both: a product and the addition of its result
// to the residual; and, before and behind a product that `gemm` takes joined, the norm and silu ·
// up. When `gemm` is deterministic nothing is joined: what is rounded would depend on the rows.
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
