#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/model/bf16_layers.h"
#include "common/model/model_spec.h"
#include "common/model/rank_plan.h"
#include "common/model/weight_source.h"
#include "kernels/ops.h"

namespace baton {

struct DecoderLimits {
  int32_t max_rows = 512;        // most rows of one step
  int32_t max_logit_rows = 256;  // most rows of one step for which logits are computed
  bool fp8_kv = false;           // the KV cache is FP8: scales are computed while loading
  Bf16Layers bf16 = {};          // the weights that stay in bf16 when the backend has FP8 weights
  StageBalance balance = StageBalance::kDecodes;
};

// Called during Load with the fraction of the weights that is loaded, 0 … 1.
using LoadProgress = std::function<void(double)>;

// Called during Forward after the KV write of `layer` was issued for all rows of the step by all
// tensor-parallel ranks (on an asynchronous device: enqueued, not finished). A rank reports the
// layers of its own pipeline stage.
using LayerHook = std::function<void(int32_t layer)>;

// The results of the logit rows of a step, where they are wanted.
struct StepResults {
  Tensor logits;  // float32 [rows][vocab]
  Tensor states;  // [rows][hidden] after the final norm, of Ops::activation_dtype()
};

// A decoder-only transformer on one device, or one rank's part of it: the exchange of the Ops
// decides the part (RankPlan). A ModelSpec configures it for all model families. Owns
// its packed weights and its activation buffers, which are allocated once for the limits. Does not
// own the Ops. One thread at a time.
class Decoder final {
 public:
  // Checks names, types and shapes of all weights, then loads tensor by tensor and releases the
  // file pages of each tensor, so that memory use stays near the size of the packed weights. `ops`
  // outlives the decoder; `weights` is not needed afterwards. Errors: NotFound or InvalidArgument
  // naming file, tensor, expected and found shapes; ResourceExhausted; InvalidArgument when fp8_kv
  // is set and the backend has no FP8 KV cache; the errors of MakeRankPlan; the error of
  // Ops::CheckModel when the backend cannot run the model.
  static StatusOr<std::unique_ptr<Decoder>> Load(const ModelSpec& spec,
                                                 const WeightSource& weights,
                                                 Ops& ops,
                                                 const DecoderLimits& limits,
                                                 const LoadProgress& progress = {});
  ~Decoder();

  // Issues the whole model for `input`. Must be called between ops().BeginStep(input, kv) and
  // IssueStep(). Returns the results that `input` wants of its logit rows. They are in buffers of
  // the decoder that the next Forward overwrites; Ops::Sample and CopyRows may follow in the same
  // step. `input` has 1 … max_rows tokens and at most max_logit_rows logit rows; where only their
  // hidden states are wanted, all rows may be logit rows. In a group all ranks call it with the
  // same input; the leader gets the results, the others empty tensors.
  StepResults Forward(const StepInput& input, const LayerHook& hook = {}) {
    ForwardStage(input, hook);
    return TakeResults(input.logit_rows.size(), input.results);
  }
  // The two parts of Forward. ForwardStage issues the rank's own stage and hands its result to the
  // next stage. TakeResults, with the number of logit rows and what is wanted of them, receives the
  // results of the oldest step whose results were not taken. On the leader of a pipeline other
  // steps may be issued between the two, when Exchange::SendsAhead allows it. TakeResults may then
  // follow the step's IssueStep; its errors are those of AwaitStep.
  void ForwardStage(const StepInput& input, const LayerHook& hook = {});
  StepResults TakeResults(size_t logit_rows, RowResults wanted);

  const ModelSpec& spec() const;  // of the whole model
  const RankPlan& plan() const;
  const DecoderLimits& limits() const;
  Ops& ops() const;
  // Identifies spec and weights (fingerprint.h). Two workers may exchange KV only if their
  // fingerprints are equal.
  const Hash128& fingerprint() const;
  // The hash of the bytes of all weights, or of the part of them that this rank of a group hashes
  // (weights_hash.h). Unlike the fingerprint it tells every difference.
  const Hash128& weights_hash() const;
  // Bytes of the packed weights on the device.
  size_t weight_bytes() const;

 private:
  class Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
