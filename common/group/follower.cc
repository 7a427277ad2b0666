#include "common/group/follower.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "common/group/step_message.h"

namespace baton {
namespace {

// The leader's signs of life are looked for this often.
constexpr Duration kLook = std::chrono::milliseconds(100);

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

// The messages that a follower has taken from the ring and not yet ended. While a device computes a
// step, the next one is issued already, so that the device does not wait for this thread.
class OpenMessages {
 public:
  OpenMessages(Executor& executor, StepRing& ring, const FollowerOptions& options)
      : executor_(executor), ring_(ring), options_(options) {}

  bool empty() const { return open_.empty(); }
  // Whether the executor can take another step before the oldest one is awaited.
  bool takes_more() const { return open_.empty() || (executor_.queues_steps() && steps_ < kSteps); }

  Status Run(std::span<const std::byte> bytes) {
    BATON_ASSIGN_OR_RETURN(const StepMessage message, DecodeStep(bytes));
    if (message.number != ++number_) {
      return MakeStatus(StatusCode::kInternal,
                        "step message {} follows {} messages",
                        message.number,
                        number_ - 1);
    }
    if (!message.copies.empty()) BATON_RETURN_IF_ERROR(executor_.CopyBlocks(message.copies));
    const bool step = !message.input.tokens.empty();
    // Only the leader samples.
    if (step) BATON_RETURN_IF_ERROR(executor_.Issue(message.input, {}, {}, {}));
    open_.push_back(step);
    steps_ += step ? 1 : 0;
    return OkStatus();
  }

  // Ends the oldest messages that need no wait, and one more when the executor takes no more steps.
  Status End() {
    while (!open_.empty()) {
      if (open_.front()) {
        if (takes_more() && !executor_.StepEnded()) return OkStatus();
        BATON_RETURN_IF_ERROR(executor_.Await());
        --steps_;
      }
      open_.pop_front();
      const RankTimes times = executor_.rank_times().front();
      ring_.End(options_.follower, times);
      if (options_.on_ended) options_.on_ended(ring_.ended_messages(), times);
    }
    return OkStatus();
  }

 private:
  static constexpr int kSteps = 2;  // as Executor::queues_steps

  Executor& executor_;
  StepRing& ring_;
  const FollowerOptions& options_;
  uint64_t number_ = 0;
  std::deque<bool> open_;  // oldest first; whether the message is a step
  int steps_ = 0;          // of them
};

}  // namespace

Status RunFollower(Executor& executor,
                   StepRing& ring,
                   const FollowerOptions& options,
                   const std::stop_token& stop) {
  LeaderWatch leader(options.leader_limit);
  OpenMessages open(executor, ring, options);
  while (!stop.stop_requested()) {
    const Duration wait = open.empty() ? kLook : Duration::zero();
    BATON_ASSIGN_OR_RETURN(const auto bytes, ring.Next(options.waiting, wait));
    if (bytes.has_value()) {
      BATON_RETURN_IF_ERROR(open.Run(*bytes));
    } else if (open.empty() && leader.Silent(ring.beats())) {
      return MakeStatus(StatusCode::kUnavailable,
                        "the group's leader has shown no sign of life for {:.1f} s",
                        ToSeconds(options.leader_limit));
    } else if (!open.empty()) {
      std::this_thread::yield();
    }
    BATON_RETURN_IF_ERROR(open.End());
  }
  return OkStatus();
}

}  // namespace baton
