#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/matrix.h"
#include "kernels/cuda/exchange/exchange_ops.h"
#include "kernels/cuda/exchange/group_exchange.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/input/step_layout.h"
#include "kernels/cuda/latent/latent_attention.h"
#include "kernels/cuda/latent/latent_ops.h"
#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/cuda/rows/family_ops.h"
#include "kernels/cuda/rows/norm.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"

// The ops of a step as data. CudaOps lists them while the decoder calls its methods. At the end
// of the step, ops that one kernel can compute are fused (fuse_ops.h), the values that are left get
// memory (bind_memory.h), and the list runs on a stream. When the list equals one that was captured
// into a CUDA graph, that graph runs instead. The list describes the work completely, so equal
// lists always mean equal work.
namespace baton::cuda {

struct EmbedOp {
  const CudaMatrix* table = nullptr;
  int32_t first_token = 0;  // of row 0 of the table
  Tensor out;
  bool operator==(const EmbedOp&) const = default;
};

// residual += delta.
struct AddOp {
  Tensor residual;
  Tensor delta;
  bool operator==(const AddOp&) const = default;
};

// out = x in FP8.
struct QuantizeOp {
  Tensor x;
  Fp8Rows out;
  bool operator==(const QuantizeOp&) const = default;
};

// x = x · scales + bias: completes a GEMM of FP8 operands that did not apply them.
struct RescaleOp {
  Tensor x;
  OutputScales scales{};
  const __nv_bfloat16* bias = nullptr;
  bool operator==(const RescaleOp&) const = default;
};

// First residual += input. Then the RMS norm of `residual` is written to `fp8_out` if `fp8_out` has
// data, else to `out`. Only one of them has.
struct NormOp {
  Tensor residual;
  NormInput input = NoInput{};
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  Fp8Rows fp8_out{};
  bool operator==(const NormOp&) const = default;
};

// The tensor that a norm adds as it is; null when there is none.
const Tensor* DeltaOf(const NormOp& norm);
// Whether the kernel of a norm can read what other ranks or experts have computed as its input.
bool CanComputeInput(const NormOp& norm);

// out = the RMS norm of x, an activation.
struct ActivationNormOp {
  Tensor x;
  const float* weight = nullptr;
  float epsilon = 0;
  Tensor out;
  bool operator==(const ActivationNormOp&) const = default;
};

struct MatMulOp {
  GemmProblem problem;
  bool operator==(const MatMulOp&) const = default;
};

// out = silu(gate) · up, where gate_up · scales = [gate | up]. Writes `fp8_out` instead of `out`
// when `fp8_out` has data. Only one of them has.
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
  Tensor out;  // without data: the next op adds up the results
  bool operator==(const ExpertsOp&) const = default;
};

// out = x, rounded from float32 to bf16.
struct RoundOp {
  Tensor x;
  Tensor out;
  bool operator==(const RoundOp&) const = default;
};

// Computes the cosines and sines that the rope ops after this one use.
struct AnglesOp {
  const float* inverse_frequencies = nullptr;
  int32_t pairs = 0;
  float magnitude = 1;
  float2* angles = nullptr;  // [rows][pairs]
  bool operator==(const AnglesOp&) const = default;
};

struct RopeOp {
  Tensor qkv;
  OutputScales scales{};  // qkv is multiplied by these first
  HeadShape heads;
  RopePairing pairing = RopePairing::kHalves;
  int32_t pairs = 0;  // half of the dimensions that are rotated
  const float2* angles = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0;
  bool norm_after_rope = false;
  const float* kv_scales = nullptr;
  QueryScaling query_scaling = {};
  int32_t cache_group = 0;
  int32_t layer = 0;  // KvLayerPlace::index
  bool operator==(const RopeOp&) const = default;
};

struct AttentionOp {
  Tensor qkv;
  AttentionShape shape;
  // Null until the step is planned. Shared by the layers of one shape: a plan is larger than all
  // other ops, and a step has hundreds of ops.
  std::shared_ptr<const AttentionPlan> plan;
  int32_t layer = 0;  // KvLayerPlace::index
  const float* kv_scales = nullptr;
  const float* sinks = nullptr;  // AttentionArgs::sinks
  Tensor out;
  Tensor packed;      // the kernels' destination when `out` has gaps between its rows
  Fp8Rows fp8_out{};  // instead of `out`, when it has data
  bool operator==(const AttentionOp& other) const;
};

// out[i] = x[logit row i].
struct GatherOp {
  Tensor x;
  Tensor out;
  bool operator==(const GatherOp&) const = default;
};

// Copies x to OpContext::copied, in host memory.
struct CopyRowsOp {
  Tensor x;
  bool operator==(const CopyRowsOp&) const = default;
};

struct SampleOp {
  Tensor logits;
  SamplingPlan plan;
  bool operator==(const SampleOp&) const = default;
};

// Records the step's event `index`, which shows that all ops before this one have finished. In
// recorded steps this op does nothing.
struct NotifyOp {
  size_t index = 0;
  bool operator==(const NotifyOp&) const = default;
};

using StepOp = std::variant<EmbedOp,
                            AddOp,
                            QuantizeOp,
                            RescaleOp,
                            NormOp,
                            ActivationNormOp,
                            MatMulOp,
                            SiluMulOp,
                            ExpertsOp,
                            RoundOp,
                            AnglesOp,
                            RopeOp,
                            AttentionOp,
                            GatherOp,
                            CopyRowsOp,
                            SampleOp,
                            NotifyOp,
                            FamilyOp,
                            LatentOp,
                            RecurrentOp,
                            ExchangeOp>;

// What running an op needs beside the op itself.
struct OpContext {
  const StepLayout& step;
  const KvView& kv;
  Gemm& gemm;
  Attention& attention;
  LatentAttention& latents;
  Experts& experts;
  Sampling& sampling;
  GroupExchange* exchange;  // null: the only rank
  std::span<const cudaEvent_t> marks;
  std::byte* copied = nullptr;  // pinned memory for the step's CopyRowsOp; null: it has none
  cudaStream_t stream = nullptr;
};

// Makes the decisions that must precede a capture of `call`: cuBLASLt's algorithm for a GEMM.
Status Prepare(const StepOp& call, const OpContext& context);

// Launches the kernels of `call`. Errors: those of the launch or of the exchange.
Status Run(const StepOp& call, const OpContext& context);

}  // namespace baton::cuda
