#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace baton {

// What the engine must know about a model.
struct ModelTraits {
  int32_t context_length = 0;  // tokens of prompt and output together
  int32_t vocabulary = 0;      // token ids are 0 … vocabulary - 1
  int32_t max_rows = 0;        // tokens in one Run
  int32_t max_logit_rows = 0;  // logits rows in one Run
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_token_multiple = 1;  // tokens of a KV block are a multiple of this
  bool k_dim_major = false;
  bool quantized_kv = false;  // it has what a KV cache in E4M3 needs
  Hash128 fingerprint;
};

// Who wants to know how far a step has come. `reached(n)` says that the KV of layers 0 … n − 1 of
// all rows is in memory, where others may read it. It comes for each n of `marks` (ascending) or
// for some of them, in order, on the thread that runs the step or on one of the device's, and never
// after the step was awaited.
struct LayerWatch {
  std::span<const int32_t> marks;
  std::function<void(int32_t layers)> reached;  // set when there are marks
};

// Runs steps of one model. The engine's only way to the mathematics, so that the tests can put in a
// model whose tokens show every fault of KV bookkeeping. One thread at a time.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const ModelTraits& traits() const = 0;
  virtual Device& device() = 0;
  // Whether a step may be issued while the one before it is under way (but not more than one). It
  // may take that one's tokens (ChosenBefore), and sees what that one wrote.
  virtual bool queues_steps() const { return false; }
  // Starts a step: it computes the rows of `input`, writes their KV into `kv`, and chooses a token
  // for each of `input.logit_rows` (ascending; a row occurs once for each token wanted from it), as
  // `sampling` says, into `out`, kNoToken where the logits leave none. Tells `watch` meanwhile.
  // `out` alone must stay valid until the step was awaited. After an error there is nothing to
  // await. Any error, here or in Await, leaves the KV of these rows undefined; Unavailable says
  // that the device is lost, and that nothing will succeed any more.
  virtual Status Issue(const StepInput& input,
                       const KvView& kv,
                       std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out,
                       const LayerWatch& watch) = 0;
  // Waits for the oldest step under way.
  virtual Status Await() = 0;
  // Does once what the first prompts of each size would pay for, and takes the memory that steps
  // need. Overwrites `kv`, of which one block is enough.
  virtual Status WarmUpPrompts(const KvView& /*kv*/) { return OkStatus(); }
  // The same for steps that only decode. `kv` is the arena that is used afterwards.
  virtual Status WarmUpDecodes(const KvView& /*kv*/) { return OkStatus(); }
  // Copies whole blocks, in order, behind the steps that were issued and before those that will be.
  virtual Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) = 0;
};

}  // namespace baton
