#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/engine/model_runner.h"
#include "common/kvcache/layout.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/sampling.h"

namespace baton {

// The KV memory of one rank: kv_blocks() blocks of `shard`, one after the other.
struct KvArena {
  KvShard shard;
  const Buffer* memory = nullptr;  // null: on another host
};

// What computes for an engine and holds its KV: a model and an arena in the memory of its device.
// The engine decides what happens; the executor issues, awaits and copies. Every rank that holds a
// part of the model has an arena of kv_blocks() blocks, and block n of a sequence is block n on
// every rank. One thread at a time.
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
  virtual bool queues_steps() const = 0;
  virtual int32_t stages() const = 0;
  virtual Duration bubble() const = 0;
  // The times of each rank, by rank.
  virtual std::vector<RankTimes> rank_times() const = 0;
  // The steps, as in ModelRunner, with the executor's own arena.
  virtual Status Issue(const StepInput& input,
                       std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out,
                       const LayerWatch& watch) = 0;
  virtual bool samples_later() const = 0;
  virtual Status IssueSampling(std::span<const SamplingRow> sampling,
                               std::span<SampledToken> out) = 0;
  virtual bool has_late_rows() const = 0;
  virtual bool StepEnded() const = 0;
  virtual Status Await() = 0;
  virtual Status CopyBlocks(std::span<const BlockCopy> copies) = 0;
};

}  // namespace baton
