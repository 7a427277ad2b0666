#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/cuda/step/step_layout.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"

// The ops of a step as data. CudaOps writes them down while the decoder issues them; at the end of
// the step they are joined where one kernel can do the work of several, and run on a stream. A step
// whose list equals one that was captured into a CUDA graph replays that graph: the list is all
// there is to compare, so a graph never stands for other work than was asked for.
namespace baton::cuda {

struct EmbedOp {
  const CudaMatrix* table = nullptr;
  Tensor out;
  bool operator==(const EmbedOp&) const = default;
};

// out = x in E4M3.
struct QuantizeOp {
  Tensor x;
  Fp8Rows out;
  bool operator==(const QuantizeOp&) const = default;
};

// x = x · scales + bias: what a product of quantised operands lacks.
struct RescaleOp {
  Tensor x;
  OutputScales scales{};
  const __nv_bfloat16* bias = nullptr;
  bool operator==(const RescaleOp&) const = default;
};

// residual += delta · scales (when there is one), then out = norm of residual; in E4M3 when
// `quantized` has data.
struct NormOp {
  Tensor residual;
  Tensor delta;  // without data: none
  OutputScales delta_scales{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
  bool operator==(const NormOp&) const = default;
};

struct MatMulOp {
  GemmProblem problem;
  bool operator==(const MatMulOp&) const = default;
};

// out = silu(gate) · up of gate_up · scales = [gate | up]; in E4M3 when `quantized` has data.
struct SiluMulOp {
  Tensor gate_up;
  OutputScales scales{};
  Tensor out;
  Fp8Rows fp8_out{};
  bool operator==(const SiluMulOp&) const = default;
};

struct ExpertsOp {
  Tensor x;
  PreparedExperts experts;
  Tensor out;
  bool operator==(const ExpertsOp&) const = default;
};

// The cosines and sines that the rope calls behind it use.
struct AnglesOp {
  const float* inverse_frequencies = nullptr;
  int32_t pairs = 0;
  float magnitude = 1;
  float2* angles = nullptr;  // [rows][pairs]
  bool operator==(const AnglesOp&) const = default;
};

struct RopeOp {
  Tensor qkv;
  OutputScales scales{};  // of qkv, which they turn into what it stands for
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t pairs = 0;  // half of the dimensions that turn
  const float2* angles = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
  const float* kv_scales = nullptr;
  int32_t layer = 0;
  bool operator==(const RopeOp&) const = default;
};

struct AttentionOp {
  Tensor qkv;
  AttentionPlan plan;  // until the end of the step only its shape
  int32_t layer = 0;
  const float* kv_scales = nullptr;
  Tensor out;
  Tensor packed;      // where the kernels write when `out` has gaps between its rows
  Fp8Rows fp8_out{};  // instead of `out`, when it has data
  bool operator==(const AttentionOp&) const = default;
};

// out[i] = x[logit row i].
struct GatherOp {
  Tensor x;
  Tensor out;
  bool operator==(const GatherOp&) const = default;
};

struct SampleOp {
  Tensor logits;
  SamplingPlan plan;
  bool operator==(const SampleOp&) const = default;
};

// Marks that all calls before it are done, by event `index` of the step; recorded steps have no
// marks.
struct NotifyOp {
  size_t index = 0;
  bool operator==(const NotifyOp&) const = default;
};

using StepOp = std::variant<EmbedOp,
                            QuantizeOp,
                            RescaleOp,
                            NormOp,
                            MatMulOp,
                            SiluMulOp,
                            ExpertsOp,
                            AnglesOp,
                            RopeOp,
                            AttentionOp,
                            GatherOp,
                            SampleOp,
                            NotifyOp>;

// Joins neighbours where one kernel does the work of both: what quantises the operand of a product
// with what wrote it, what rescales its result with what reads it; a product and the addition of
// its result to the residual; and, before and behind a product that `gemm` takes joined, the norm
// and silu · up. When `gemm` is deterministic, only what is joined for every number of rows: what
// is rounded would depend on the rows.
void FuseOps(std::vector<StepOp>& ops, const Gemm& gemm);

// What running a call needs beside the call.
struct OpContext {
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
Status Prepare(const StepOp& call, const OpContext& context);

// Issues `call`. Errors: what the launch says.
cudaError_t Run(const StepOp& call, const OpContext& context);

}  // namespace baton::cuda
