#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cluster/load.h"
#include "common/engine/arena.h"
#include "common/engine/model_traits.h"
#include "common/kvcache/layout.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace baton {

// Reports the progress of a step. `reached(n)` means that the KV of layers 0 … n − 1 of all rows is
// in memory, where others may read it. It is called in order for all or some n of `marks`
// (ascending), on the thread that runs the step or on a thread of the device, and never after the
// step was awaited.
struct LayerWatch {
  std::span<const int32_t> marks;
  std::function<void(int32_t layers)> reached;  // must be set when there are marks
};

// What computes for an engine and holds its KV: a model and an arena in the memory of its device.
// The engine decides what happens; the executor issues, awaits and copies. The engine computes only
// through this interface, so that tests can use a fake whose tokens reveal every fault of KV
// bookkeeping. Every rank that holds a part of the model has an arena of kv_blocks() blocks, and
// block n of a sequence is block n on every rank. One thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  // Of the whole model.
  virtual const ModelTraits& traits() const = 0;
  // Of the whole model; a rank may hold only a shard of each block.
  virtual const KvLayout& kv_layout() const = 0;
  virtual int32_t kv_blocks() const = 0;
  // The arenas of all ranks, by rank. The memory lives as long as the executor.
  virtual std::span<const KvArena> kv_arenas() const = 0;
  // The device's name, for messages and for operators.
  virtual std::string device_name() const = 0;
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
  // The steps that were awaited since the warm-up, by rank.
  virtual std::vector<RankTimes> rank_times() const { return {RankTimes()}; }
  // Starts a step. The step computes the rows of `input`, writes their KV into the arena, and
  // samples one token for each entry of `input.logit_rows` according to `sampling`. The entries
  // ascend; a row occurs once for each of its tokens. `sampling` is empty on a rank that chooses no
  // tokens, and where the executor samples later. Where input.results includes hidden states,
  // they go where `sampling` says; with states alone, no tokens are chosen.
  // `out` receives the tokens, kNoToken where no token can be chosen from the logits. Calls `watch`
  // meanwhile. `out` and what the rows of `sampling` refer to must stay valid until the step was
  // awaited; with one stage, only `out`. After an error there is nothing to await. Any error, here
  // or in Await, leaves the KV of these rows undefined. Unavailable means that the device is lost
  // and that no later call succeeds.
  virtual Status Issue(const StepInput& input,
                       std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out,
                       const LayerWatch& watch) = 0;
  // Whether the tokens of a step that is issued behind another one may be chosen later, by
  // IssueSampling: masks and penalties need the tokens of the step before.
  virtual bool samples_later() const { return false; }
  // Chooses the tokens of the only step under way, which was issued without `sampling`. As in
  // Issue; after an error the step must still be awaited.
  virtual Status IssueSampling(std::span<const SamplingRow> /*sampling*/,
                               std::span<SampledToken> /*out*/) {
    return MakeStatus(StatusCode::kUnimplemented, "{} does not sample later", device_name());
  }
  // Whether the mask of a row of the newest step was late (kLateToken). Known when the row's
  // sampling is issued; false where steps are not sampled later.
  virtual bool has_late_rows() const { return false; }
  // Whether Await would return without waiting; a step is under way.
  virtual bool StepEnded() const { return true; }
  // Waits for the oldest step under way.
  virtual Status Await() = 0;
  // Copies whole blocks, in order: after the steps issued so far and before later steps.
  virtual Status CopyBlocks(std::span<const BlockCopy> copies) = 0;
};

// StateBlocks of the executor's ranks.
inline int32_t StateBlocks(const Executor& executor) {
  std::vector<KvShard> shards;
  for (const KvArena& arena : executor.kv_arenas()) shards.push_back(arena.shard);
  return StateBlocks(executor.kv_layout(), shards);
}

}  // namespace baton
