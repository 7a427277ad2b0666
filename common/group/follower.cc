#include "common/group/follower.h"

#include <algorithm>

#include "common/group/step_message.h"

namespace baton {
namespace {

// The leader's signs of life are looked for this often.
constexpr Duration kLook = std::chrono::milliseconds(100);

Status RunMessage(Executor& executor, const StepMessage& message) {
  if (!message.copies.empty()) BATON_RETURN_IF_ERROR(executor.CopyBlocks(message.copies));
  if (message.input.tokens.empty()) return OkStatus();
  // Only the leader samples.
  BATON_RETURN_IF_ERROR(executor.Issue(message.input, {}, {}, {}));
  return executor.Await();
}

// Counts the looks at which the leader had made no beat since the look before.
class LeaderWatch {
 public:
  explicit LeaderWatch(Duration limit) : limit_(std::max<int64_t>(1, limit / kLook)) {}

  bool Silent(uint64_t beats) {
    silent_looks_ = beats == beats_ ? silent_looks_ + 1 : 0;
    beats_ = beats;
    return silent_looks_ >= limit_;
  }

 private:
  const int64_t limit_;
  int64_t silent_looks_ = 0;
  uint64_t beats_ = 0;
};

}  // namespace

Status RunFollower(Executor& executor,
                   StepRing& ring,
                   const FollowerOptions& options,
                   const std::stop_token& stop) {
  LeaderWatch leader(options.leader_limit);
  uint64_t number = 0;
  while (!stop.stop_requested()) {
    BATON_ASSIGN_OR_RETURN(const auto bytes, ring.Next(options.waiting, kLook));
    if (!bytes.has_value()) {
      if (!leader.Silent(ring.beats())) continue;
      return MakeStatus(StatusCode::kUnavailable,
                        "the group's leader has shown no sign of life for {:.1f} s",
                        ToSeconds(options.leader_limit));
    }
    BATON_ASSIGN_OR_RETURN(const StepMessage message, DecodeStep(*bytes));
    if (message.number != ++number) {
      return MakeStatus(
          StatusCode::kInternal, "step message {} follows {} messages", message.number, number - 1);
    }
    BATON_RETURN_IF_ERROR(RunMessage(executor, message));
    ring.End(options.follower);
  }
  return OkStatus();
}

}  // namespace baton
