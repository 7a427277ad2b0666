#include "common/group/group_executor.h"

#include <utility>

#include "common/engine/step_queue.h"
#include "common/group/step_message.h"

namespace baton {
namespace {

// A step has two messages at most. A leader that waits for a slot takes no logits, for which the
// last stage may wait.
static_assert(StepRing::kSlots >= 2 * StepQueue::kMaxSteps);

// A rank that failed or is late cannot be left out: the group is lost, as a lost device is.
Status Broken(const Status& status) {
  return Status(StatusCode::kUnavailable, status.message());
}

}  // namespace

GroupExecutor::GroupExecutor(Executor& leader,
                             StepRing& ring,
                             std::vector<FollowerArena> followers,
                             const Options& options)
    : leader_(leader), ring_(ring), followers_(std::move(followers)), options_(options) {
  arenas_.assign(leader.kv_arenas().begin(), leader.kv_arenas().end());
  for (const FollowerArena& follower : followers_) {
    arenas_.push_back({follower.shard, follower.memory.get()});
  }
}

std::string GroupExecutor::device_name() const {
  return fmt::format("{} ranks, {}", ring_.followers() + 1, leader_.device_name());
}

std::vector<RankTimes> GroupExecutor::rank_times() const {
  std::vector<RankTimes> times = leader_.rank_times();
  for (int i = 0; i < ring_.followers(); ++i) times.push_back(ring_.times(i));
  return times;
}

Status GroupExecutor::Publish(const StepInput& input, std::span<const BlockCopy> copies) {
  auto slot = ring_.Prepare(StepMessageBytes(input, copies), options_.waiting, options_.limit);
  if (!slot.ok()) {
    return slot.status().code() == StatusCode::kResourceExhausted ? slot.status()
                                                                  : Broken(slot.status());
  }
  EncodeStep({ring_.published() + 1, input, copies}, *slot);
  ring_.Publish();
  if (!options_.forward) return OkStatus();
  const Status forwarded = options_.forward(*slot);
  return forwarded.ok() ? forwarded : Broken(forwarded);
}

Status GroupExecutor::Issue(const StepInput& input,
                            std::span<const SamplingRow> sampling,
                            std::span<SampledToken> out,
                            const LayerWatch& watch) {
  BATON_RETURN_IF_ERROR(Publish(input, {}));
  // After an error the followers have begun a step that rank 0 does not compute.
  if (const Status issued = leader_.Issue(input, sampling, out, watch); !issued.ok()) {
    return Broken(issued);
  }
  steps_.push_back(ring_.published());
  return OkStatus();
}

bool GroupExecutor::StepEnded() const {
  return leader_.StepEnded() && ring_.HasEnded(steps_.front());
}

Status GroupExecutor::Await() {
  const uint64_t step = steps_.front();
  steps_.pop_front();
  Status status = leader_.Await();
  // The KV of the step is complete only when every rank has written its part.
  if (status.ok()) status = ring_.WaitEnded(step, options_.waiting, options_.limit);
  return status.ok() ? status : Broken(status);
}

Status GroupExecutor::CopyBlocks(std::span<const BlockCopy> copies) {
  BATON_RETURN_IF_ERROR(Publish({}, copies));
  return leader_.CopyBlocks(copies);
}

}  // namespace baton
