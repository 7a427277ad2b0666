#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/executor.h"
#include "common/group/step_ring.h"

namespace baton {

// The arena of a follower, mapped into the leader's process; without memory if the follower is on
// another host.
struct FollowerArena {
  KvShard shard;
  std::unique_ptr<Buffer> memory;
};

// The leader's executor of a group of ranks: passes each step to the followers, and computes rank
// 0's part of the step. The followers run RunFollower over the same ring. They get a step whole, so
// a group does not sample later. The references outlive the executor. One thread at a time, as
// Executor.
class GroupExecutor final : public Executor {
 public:
  struct Options {
    StepRing::Waiting waiting = {};
    // How long a follower may take longer than rank 0 for a step.
    Duration limit = std::chrono::seconds(60);
    // Sends a published message to the followers on other hosts, whose ends come back as
    // StepRing::SetEnded. Empty: there are none.
    std::function<Status(std::span<const std::byte> message)> forward = {};
  };

  // `leader` is rank 0's executor; `followers` are the arenas of ranks 1, 2, ….
  GroupExecutor(Executor& leader,
                StepRing& ring,
                std::vector<FollowerArena> followers,
                const Options& options);

  const ModelTraits& traits() const override { return leader_.traits(); }
  const KvLayout& kv_layout() const override { return leader_.kv_layout(); }
  int32_t kv_blocks() const override { return leader_.kv_blocks(); }
  std::span<const KvArena> kv_arenas() const override { return arenas_; }
  std::string device_name() const override;
  bool queues_steps() const override { return leader_.queues_steps(); }
  int32_t stages() const override { return leader_.stages(); }
  Duration bubble() const override { return leader_.bubble(); }
  std::vector<RankTimes> rank_times() const override;
  // After an error of a follower, or when one is late: Unavailable, because the group is broken
  // and cannot compute any more.
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  // Whether every rank has ended the oldest step under way.
  bool StepEnded() const override;
  Status Await() override;
  Status CopyBlocks(std::span<const BlockCopy> copies) override;

 private:
  Status Publish(const StepInput& input, std::span<const BlockCopy> copies);

  Executor& leader_;
  StepRing& ring_;
  const std::vector<FollowerArena> followers_;
  const Options options_;
  std::vector<KvArena> arenas_;
  std::deque<uint64_t> steps_;  // the messages of the steps under way, oldest first
};

}  // namespace baton
