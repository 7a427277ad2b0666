#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/device.h"
#include "kernels/exchange.h"
#include "kernels/expert_args.h"
#include "kernels/family_ops.h"
#include "kernels/kv_view.h"
#include "kernels/latent_ops.h"
#include "kernels/model_shape.h"
#include "kernels/recurrent_ops.h"
#include "kernels/sampling.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"
#include "kernels/value_memory.h"

namespace baton {

// Multiplies the queries of the token at position p by 1 + slope · ln(1 + ⌊(p + 1) / step⌋), so
// that attention over a long context does not become flat (Llama 4).
struct QueryScaling {
  float slope = 0;   // 0: none
  int32_t step = 1;  // in tokens

  bool operator==(const QueryScaling&) const = default;
};

struct RopeArgs {
  const Vector* inverse_frequencies = nullptr;  // [rotary_dim / 2], scaling already applied
  float magnitude = 1.0f;                       // multiplies sin and cos (yarn)
  RopePairing pairing = RopePairing::kHalves;
  const Vector* q_norm =
      nullptr;  // [head_dim]; RMS norm of every q head before rope (Qwen 3), or null
  const Vector* k_norm = nullptr;
  float norm_epsilon = 0;
  // [K of every kv head | V of every kv head], for KV in FP8: the numbers of a head are stored
  // divided by its scale. Null: all scales are 1.
  const Vector* kv_scales = nullptr;
  bool norm_after_rope = false;     // the norms follow the rotation (OpVariant::kHeadNormAfterRope)
  QueryScaling query_scaling = {};  // OpVariant::kQueryScaling; after the norms
};

struct AttentionArgs {
  HeadShape heads;
  int32_t layer = 0;
  float scale = 0;     // usually 1/√head_dim
  int32_t window = 0;  // a row sees the last `window` positions, itself included; 0 = all
  // Positions 0 … chunk − 1 are a chunk, and so on; a row sees those of its chunk up to itself
  // (OpVariant::kChunkedAttention). 0: no chunks.
  int32_t chunk = 0;
  const Vector* kv_scales = nullptr;  // as RopeArgs::kv_scales
  // [q_heads]: one more logit of each head's softmax, which is not scaled and has no value
  // (OpVariant::kAttentionSinks). Null: none.
  const Vector* sinks = nullptr;
  float cap = 0;  // a scaled logit l becomes cap · tanh(l / cap) (OpVariant::kSoftCap); 0: none
  // Only the step's logit rows are needed. A backend may leave other rows unwritten.
  bool only_logit_rows = false;
};

// Sizes of steps whose first run is slow, because algorithms are chosen or graphs captured.
struct WarmUpSizes {
  std::vector<int32_t> prompt_rows;  // steps with one prompt of this many tokens
  std::vector<int32_t> decode_rows;  // steps with this many decoding sequences
};

// The operations of a step on one device. A step is BeginStep, ops in order, IssueStep, AwaitStep.
// On the first stage of a pipeline whose exchange sends ahead (Exchange::SendsAhead), receiving and
// sampling the logits of the oldest step under way may follow IssueStep: as the last ops before its
// AwaitStep, after IssueStep of later steps. As many steps as stages may be under way there.
// Ops may run at any time in between; IssueStep or AwaitStep returns their errors. The output of an
// op that only later ops of the same step read may never be written, because a backend may fuse
// these ops. Used by one thread at a time.
//
// The residual stream, to which every layer adds, is float32 on every device; other activations are
// activation_dtype().
//
// A row's result never depends on which other rows are in the step (always on the CPU; on a GPU
// under its `deterministic` option).
class Ops {
 public:
  virtual ~Ops() = default;

  virtual Device& device() = 0;
  // The type of activations (f32 on the CPU).
  virtual DType activation_dtype() const = 0;
  virtual KvNeeds kv_needs() const = 0;
  // Whether the KV cache may be in FP8 (E4M3).
  virtual bool supports_fp8_kv() const { return false; }
  // Checks whether this backend can run a model, before its weights are loaded. Errors:
  // Unimplemented, naming the size that is out of bounds, its value and what would be right, or the
  // variants of ops that the backend does not have.
  virtual Status CheckModel(const ModelShape& shape) const = 0;
  // The rows for which activation buffers must have room when a step has at most `rows` rows. A
  // backend may write padding rows behind the rows of the step.
  virtual int32_t PaddedRows(int32_t rows) const { return rows; }

  // The sizes of steps that should run once before the engine serves, when steps have at most
  // `rows` rows and `decode_rows` decoding sequences. Empty on a CPU.
  virtual WarmUpSizes SizesToWarmUp(int32_t /*rows*/, int32_t /*decode_rows*/) const { return {}; }

  // Whether a step has chosen among kernels by timing them. Steps of other sizes must then time
  // them as well, before the engine serves.
  virtual bool has_timed_kernels() const { return false; }
  // Keeps the choices for the next process on this machine (BackendOptions::kernel_cache). Errors:
  // the folder cannot be written.
  virtual Status KeepTimedKernels() { return OkStatus(); }

  // The exchanges with the other ranks of the group; null when this rank is the only one.
  virtual Exchange* exchange() { return nullptr; }
  // The ops that only some model families need; null when the backend has none of them. CheckModel
  // refuses models that need more than it has.
  virtual FamilyOps* family_ops() { return nullptr; }
  // The ops of multi-head latent attention; null when the backend has none of them.
  virtual LatentOps* latent_ops() { return nullptr; }
  // The ops of recurrent layers; null when the backend has none of them.
  virtual RecurrentOps* recurrent_ops() { return nullptr; }

  // Loads a weight. Several parts are stacked along their rows (q, k and v become one matrix).
  // Parts may have different types, but must have the same columns (HostMatrix::SameColumns). The
  // loaded numbers of a part equal those of the whole matrix. Only the memory of the part is read,
  // except by a backend that quantizes the part with scales of whole rows: it reads all columns of
  // the part's rows. The sources are not needed after the call. Errors: InvalidArgument for a type
  // or shape that the backend does not support; ResourceExhausted when memory runs out.
  virtual StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) = 0;
  // Like LoadMatrix of {gate, up}, in the layout that MatMulSiluMul needs.
  virtual StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                                       const HostMatrix& up) = 0;
  virtual StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) = 0;

  // Finds memory for the values of steps. Values that are not needed at the same time may share it.
  // The data of the tensors may stand for memory that the backend chooses when it has the whole
  // step: then only ops of this object may use tensors of ValueReach::kStep. Those of another reach
  // are in memory. Errors: ResourceExhausted; the message is the end of a sentence about the
  // values.
  virtual StatusOr<PlacedValues> PlaceValues(std::span<const ValueUse> values) = 0;

  virtual Status BeginStep(const StepInput& input, const KvView& kv) = 0;
  // Whether a step may begin while one earlier step (not more) is still under way. The new step
  // runs after the earlier one, and may use the tokens that the earlier one samples (ChosenBefore).
  virtual bool queues_steps() const { return false; }
  // Whether Sample may follow IssueStep, where only this step is under way: then as its last op,
  // followed by IssueSampling. Only without an exchange.
  virtual bool samples_later() const { return false; }
  virtual Status IssueSampling() {
    return MakeStatus(StatusCode::kUnimplemented, "this backend does not sample later");
  }
  // Whether a row of the newest step yields kLateToken; known when its Sample is issued. False on a
  // backend that does not sample later.
  virtual bool has_late_rows() const { return false; }
  // Starts the step. After an error, the step counts as never begun and must not be awaited.
  // Unavailable: as in AwaitStep.
  virtual Status IssueStep() = 0;
  // Whether AwaitStep would return without waiting; a step is under way.
  virtual bool StepEnded() const { return true; }
  // Waits for the oldest step under way. When it returns, the results of Sample and all writes are
  // complete. Unavailable: the device is lost, and no later call in this process will succeed.
  virtual Status AwaitStep() { return OkStatus(); }
  // IssueStep and AwaitStep, for callers that do not queue steps.
  Status EndStep() {
    BATON_RETURN_IF_ERROR(IssueStep());
    return AwaitStep();
  }
  // The time that the device worked on the step that was awaited last; zero when unknown (always on
  // a CPU).
  virtual Duration DeviceTime() const { return {}; }
  // Calls the function when all earlier ops of the step are done, from any thread, but before
  // AwaitStep returns. Others may then read what these ops wrote. A backend without such
  // notifications never calls it, nor does a step in which an exchange failed.
  virtual void NotifyWhenDone(std::function<void()>) {}

  // residual[row] = table[token of row − first_token]. Row 0 of `table` belongs to `first_token`.
  // In a group, the rows of tokens that the table does not have become −0, which a sum leaves
  // unchanged (Exchange::AllReduce).
  virtual void Embed(const Matrix& table, int32_t first_token, const Tensor& residual) = 0;
  // out = x / √(mean(x²) + epsilon) · weight. `x` is the residual or another activation.
  virtual void RmsNorm(const Tensor& x, const Vector& weight, float epsilon, const Tensor& out) = 0;
  // residual += delta.
  virtual void Add(const Tensor& residual, const Tensor& delta) = 0;
  // residual += delta; out = RmsNorm(residual).
  virtual void AddRmsNorm(const Tensor& residual,
                          const Tensor& delta,
                          const Vector& weight,
                          float epsilon,
                          const Tensor& out) = 0;
  // out[row] = W x[row] (+ bias, when not null).
  virtual void MatMul(const Tensor& x,
                      const Matrix& weight,
                      const Vector* bias,
                      const Tensor& out) = 0;
  // out[row] = silu(Wgate x + bgate) · (Wup x + bup); `bias` is [gate | up] or null.
  virtual void MatMulSiluMul(const Tensor& x,
                             const Matrix& gate_up,
                             const Vector* bias,
                             const Tensor& out) = 0;
  // out[row] = Σ over the chosen experts of weight · down(silu(gate x) · up x), with the biases and
  // the gate of `args`, if any. With experts on several ranks, the op exchanges the sums, so that
  // every tensor rank has the whole `out`. A backend of ExchangeMode::kGather adds in the order of
  // expert_parts.h.
  virtual void Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) = 0;
  // Normalises and rotates q and k of `qkv` in place, and writes k and v of every row to the cache.
  virtual void RopeAndWriteKv(const Tensor& qkv,
                              const HeadShape& heads,
                              const RopeArgs& args,
                              int32_t layer) = 0;
  // Softmax attention of every row's q heads over the row's cached positions (causal, within the
  // window); out is [rows][q_heads · head_dim].
  virtual void Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) = 0;
  // out[i] = x[logit_rows[i]]; x may be the residual or another activation.
  virtual void GatherLogitRows(const Tensor& x, const Tensor& out) = 0;
  // Chooses a token for each row of `logits`, which it may overwrite. A row without a logit over
  // -inf yields kNoToken, and one whose mask is late kLateToken; neither fails the step. `rows`
  // must stay valid until the step is issued, or awaited when Sample follows IssueStep; `out` until
  // the step has been awaited.
  virtual void Sample(const Tensor& logits,
                      std::span<const SamplingRow> rows,
                      std::span<SampledToken> out) = 0;

  // Copies row i of `x`, a result of the step's graph, to rows[i] in host memory as float32, unless
  // rows[i] is empty. `rows` must stay valid until the step is issued, or awaited when CopyRows
  // follows IssueStep; the memory until the step has been awaited, which completes the copies.
  // Comes before the Sample of the step, if it has one.
  virtual void CopyRows(const Tensor& x, std::span<const std::span<float>> rows) = 0;

  // Copies whole blocks of `kv`, in order, after all steps issued so far and before later ones.
  // Must be called outside a step.
  virtual Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) = 0;
};

}  // namespace baton
