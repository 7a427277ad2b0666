#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/cluster/load.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace baton {

// The properties of a model that the engine needs.
struct ModelTraits {
  int32_t context_length = 0;  // most tokens of prompt and output together
  int32_t vocabulary = 0;      // token ids are 0 … vocabulary - 1; the head may have more rows
  int32_t max_rows = 0;        // most tokens in one step
  int32_t max_logit_rows = 0;  // most logits rows in one step
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_token_multiple = 1;  // tokens of a KV block are a multiple of this
  // The most tokens that a token's attention reads in any layer, itself included. 0: some layer
  // reads all tokens.
  int32_t sliding_window = 0;
  bool k_dim_major = false;
  bool fp8_kv = false;  // the model was loaded for an FP8 KV cache
  Hash128 fingerprint;
};

// Reports the progress of a step. `reached(n)` means that the KV of layers 0 … n − 1 of all rows is
// in memory, where others may read it. It is called in order for all or some n of `marks`
// (ascending), on the thread that runs the step or on a thread of the device, and never after the
// step was awaited.
struct LayerWatch {
  std::span<const int32_t> marks;
  std::function<void(int32_t layers)> reached;  // must be set when there are marks
};

// Runs steps of one model. The engine computes only through this interface, so that tests can use a
// fake model whose tokens reveal every fault of KV bookkeeping. One thread at a time.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const ModelTraits& traits() const = 0;
  virtual Device& device() = 0;
  // Whether one step may be issued while the previous step is under way. The second step may use
  // the tokens that the first one chooses (ChosenBefore), and reads the KV that the first one
  // wrote.
  virtual bool queues_steps() const { return false; }
  // How many steps may be under way at once when a sequence is in one of them at most, except that
  // a later step may compute the next chunk of a prompt: the number of stages of a pipeline, of
  // which this rank is the first. Such steps use no tokens of each other. 1, where steps are
  // queued.
  virtual int32_t stages() const { return 1; }
  // How long Await has waited for later stages of a pipeline, in all steps so far: the rank had
  // nothing to compute. Zero on a GPU, which may compute meanwhile.
  virtual Duration bubble() const { return {}; }
  // The steps that were awaited since the warm-up.
  virtual RankTimes times() const { return {}; }
  // Whether the tokens of a step that is issued behind another one may be chosen later, by
  // IssueSampling: masks and penalties need the tokens of the step before.
  virtual bool samples_later() const { return false; }
  // Starts a step. The step computes the rows of `input`, writes their KV into `kv`, and samples
  // one token for each entry of `input.logit_rows` according to `sampling`. The entries ascend; a
  // row occurs once for each of its tokens. `sampling` is empty on a rank that chooses no tokens,
  // and where the runner samples later.
  // `out` receives the tokens, kNoToken where no token can be chosen from the logits. Calls `watch`
  // meanwhile. `out` and what the rows of `sampling` refer to must stay valid until the step was
  // awaited; on a runner with one stage, only `out`. After an error there is nothing to await. Any
  // error, here or in Await, leaves the KV of these rows undefined. Unavailable means that the
  // device is lost and that no later call succeeds.
  virtual Status Issue(const StepInput& input,
                       const KvView& kv,
                       std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out,
                       const LayerWatch& watch) = 0;
  // Chooses the tokens of the only step under way, which was issued without `sampling`. As in
  // Issue; after an error the step must still be awaited.
  virtual Status IssueSampling(std::span<const SamplingRow> /*sampling*/,
                               std::span<SampledToken> /*out*/) {
    return MakeStatus(StatusCode::kUnimplemented, "this runner does not sample later");
  }
  // Whether the mask of a row of the newest step was late (kLateToken). Known when the row's
  // sampling is issued; false on a runner that does not sample later.
  virtual bool has_late_rows() const { return false; }
  // Whether Await would return without waiting; a step is under way.
  virtual bool StepEnded() const { return true; }
  // Waits for the oldest step under way.
  virtual Status Await() = 0;
  // Runs prompts of each size once, so that later prompts do not pay the one-time costs, and
  // allocates the memory that steps need. Overwrites `kv`, which needs only one block.
  virtual Status WarmUpPrompts(const KvView& /*kv*/) { return OkStatus(); }
  // The same for steps that only decode. `kv` is the arena that is used afterwards.
  virtual Status WarmUpDecodes(const KvView& /*kv*/) { return OkStatus(); }
  // Copies whole blocks, in order: after the steps issued so far and before later steps.
  virtual Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) = 0;
};

}  // namespace baton
