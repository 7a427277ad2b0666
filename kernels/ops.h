#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/device.h"
#include "kernels/kv_view.h"
#include "kernels/sampling.h"
#include "kernels/step_input.h"
#include "kernels/tensor.h"

namespace baton {

struct RopeArgs {
  const Vector* inverse_frequencies = nullptr;  // [rotary_dim / 2], scaling already applied
  float magnitude = 1.0f;                       // multiplies sin and cos (yarn)
  RopePairing pairing = RopePairing::kHalves;
  const Vector* q_norm =
      nullptr;  // [head_dim]; RMS norm of every q head before rope (Qwen 3), or null
  const Vector* k_norm = nullptr;
  float norm_epsilon = 0;
  // [2 · kv_heads], for KV in E4M3: numbers of K and V of each head are stored divided by these.
  // Null: 1.
  const Vector* kv_scales = nullptr;
};

struct AttentionArgs {
  HeadShape heads;
  int32_t layer = 0;
  float scale = 0;     // usually 1/√head_dim
  int32_t window = 0;  // a row sees the last `window` positions, itself included; 0 = all
  const Vector* kv_scales = nullptr;  // as RopeArgs::kv_scales
};

// The experts of one mixture-of-experts layer. Row r of `router` scores expert r.
struct ExpertArgs {
  const Matrix* router = nullptr;                    // [experts][hidden]
  std::span<const std::unique_ptr<Matrix>> gate_up;  // per expert [2·intermediate][hidden]
  std::span<const std::unique_ptr<Matrix>> down;     // per expert [hidden][intermediate]
  int32_t experts_per_token = 0;
  bool normalize = true;  // chosen experts' softmax weights are scaled to sum to 1
};

// Steps that cost something the first time: choosing algorithms, recording launches.
struct WarmUpSizes {
  std::vector<int32_t> prompt_rows;  // prompts of so many tokens
  std::vector<int32_t> decode_rows;  // so many sequences that decode
};

// What a backend must know of a model to tell whether it can run it.
struct ModelShape {
  HeadShape heads;
  int32_t hidden = 0;
  int32_t vocabulary = 0;
  int32_t experts = 0;  // 0: no layer has experts
  int32_t experts_per_token = 0;
  int32_t expert_width = 0;   // intermediate size of one expert
  bool quantized_kv = false;  // the KV cache is in E4M3
};

// The mathematics of a step on one device. A step is BeginStep, ops in order, IssueStep, AwaitStep;
// ops may run at any time in between, and errors they meet come out of IssueStep or AwaitStep. What
// an op writes for a later op of the step to read need not be there when the step is over: a
// backend may join the two. One thread at a time.
//
// The residual stream, which every layer adds to, is float32 on every device; other activations are
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
  // Whether this backend wants K stored [dim][token] inside a block (KvView::k_dim_major).
  virtual bool k_dim_major() const = 0;
  // Whether the KV cache may be in E4M3.
  virtual bool quantizes_kv() const { return false; }
  // A KV block holds a multiple of this many tokens.
  virtual int32_t block_token_multiple() const = 0;
  // Whether steps of such a model can run here, so that it is refused before its weights are
  // loaded. Unimplemented naming the size that is out of bounds, its value and what would be right.
  virtual Status CheckModel(const ModelShape& shape) const = 0;
  // How many rows activations must have room for when at most `rows` are computed in a step: a
  // backend may write rows of padding behind the step's.
  virtual int32_t PaddedRows(int32_t rows) const { return rows; }

  // The sizes of steps worth running once before they count, for steps of at most `rows` rows and
  // `decode_rows` decoding sequences. None on a CPU.
  virtual WarmUpSizes SizesToWarmUp(int32_t /*rows*/, int32_t /*decode_rows*/) const { return {}; }

  // Loading. Several parts are stacked along their rows (q, k and v become one matrix). Parts may
  // have different types, but the same cols. Errors: InvalidArgument for a type or shape it cannot
  // hold, ResourceExhausted when memory runs out. The sources are not needed after the call.
  virtual StatusOr<std::unique_ptr<Matrix>> LoadMatrix(std::span<const HostMatrix> parts) = 0;
  // As LoadMatrix of {gate, up}, laid out so that MatMulSiluMul can pair them.
  virtual StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const HostMatrix& gate,
                                                       const HostMatrix& up) = 0;
  virtual StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values) = 0;

  virtual Status BeginStep(const StepInput& input, const KvView& kv) = 0;
  // Whether a step may begin while the one before it is under way (but not more than one): it then
  // runs behind it, and may take its tokens (ChosenBefore).
  virtual bool queues_steps() const { return false; }
  // Starts the step. After an error it is as if it had never begun, and nothing is to be awaited.
  virtual Status IssueStep() = 0;
  // Waits for the oldest step under way: results of Sample and all writes are there when it
  // returns. Unavailable, here as in IssueStep, says that the device is lost: nothing will succeed
  // in this process any more.
  virtual Status AwaitStep() { return OkStatus(); }
  // Both, for a step behind which none is issued.
  Status EndStep() {
    BATON_RETURN_IF_ERROR(IssueStep());
    return AwaitStep();
  }
  // How long the device worked on the last step that was awaited; zero when that is not known (a
  // CPU: always).
  virtual Duration DeviceTime() const { return {}; }
  // Calls `done` when all ops issued so far are done, from any thread, but before AwaitStep
  // returns: what they wrote may then be read by others. A device that cannot tell never calls it.
  virtual void NotifyWhenDone(std::function<void()>) {}

  // residual[row] = table[token of row].
  virtual void Embed(const Matrix& table, const Tensor& residual) = 0;
  // out = residual / √(mean(residual²) + epsilon) · weight.
  virtual void RmsNorm(const Tensor& residual,
                       const Vector& weight,
                       float epsilon,
                       const Tensor& out) = 0;
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
  // out[row] = Σ over the chosen experts of weight · down(silu(gate x) · up x).
  virtual void Experts(const Tensor& x, const ExpertArgs& args, const Tensor& out) = 0;
  // Normalises and rotates q and k of `qkv` in place, and writes k and v of every row to the cache.
  virtual void RopeAndWriteKv(const Tensor& qkv,
                              const HeadShape& heads,
                              const RopeArgs& args,
                              int32_t layer) = 0;
  // Softmax attention of every row's q heads over the cached positions it may see; out is
  // [rows][q_heads · head_dim].
  virtual void Attention(const Tensor& qkv, const AttentionArgs& args, const Tensor& out) = 0;
  // out[i] = x[logit_rows[i]], residual or not.
  virtual void GatherLogitRows(const Tensor& x, const Tensor& out) = 0;
  // Chooses a token for each row of `logits` (which it may overwrite), kNoToken for a row without a
  // logit over -inf: such a row does not fail the step. `rows` stays valid until the step is
  // issued, `out` until it has been awaited.
  virtual void Sample(const Tensor& logits,
                      std::span<const SamplingRow> rows,
                      std::span<SampledToken> out) = 0;

  // Copies whole blocks of `kv`, in order, behind the steps that were issued and before those that
  // will be; outside a step.
  virtual Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) = 0;
};

}  // namespace baton
