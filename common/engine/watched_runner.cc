#include "common/engine/watched_runner.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/base/thread.h"

namespace baton {
namespace {

// A call is overdue when this many consecutive checks find the same call in progress. The checks
// are counted instead of the time, so that a pause of the whole process counts as one check.
constexpr int kLooks = 8;

// Returns when `overdue` was called or a stop is requested.
void Watch(const std::atomic<uint64_t>& turns,
           Duration limit,
           const std::function<void()>& overdue,
           const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  uint64_t found = 0;
  for (int looks = 0; looks < kLooks;) {
    if (stopped.wait_for(lock, stop, limit / kLooks, [&] { return stop.stop_requested(); })) return;
    const uint64_t now = turns;
    looks = now == std::exchange(found, now) && now % 2 == 1 ? looks + 1 : 0;
  }
  overdue();
}

}  // namespace

// Marks a call to the runner as in progress during its lifetime.
class WatchedRunner::Call {
 public:
  explicit Call(WatchedRunner& of) : of_(of) { ++of_.turns_; }
  ~Call() { ++of_.turns_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  WatchedRunner& of_;
};

WatchedRunner::WatchedRunner(ModelRunner& runner, Duration limit, std::function<void()> overdue)
    : runner_(runner),
      thread_(StartThread("step-watch",
                          [this, limit, overdue = std::move(overdue)](const std::stop_token& stop) {
                            Watch(turns_, limit, overdue, stop);
                          })) {}

Status WatchedRunner::Issue(const StepInput& input,
                            const KvView& kv,
                            std::span<const SamplingRow> sampling,
                            std::span<SampledToken> out,
                            const LayerWatch& watch) {
  const Call call(*this);
  return runner_.Issue(input, kv, sampling, out, watch);
}

Status WatchedRunner::IssueSampling(std::span<const SamplingRow> sampling,
                                    std::span<SampledToken> out) {
  const Call call(*this);
  return runner_.IssueSampling(sampling, out);
}

Status WatchedRunner::Await() {
  const Call call(*this);
  return runner_.Await();
}

Status WatchedRunner::CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) {
  const Call call(*this);
  return runner_.CopyBlocks(kv, copies);
}

}  // namespace baton
