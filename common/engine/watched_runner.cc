#include "common/engine/watched_runner.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/base/thread.h"

namespace baton {
namespace {

// Looks at a call so many times before it is overdue.
constexpr int kLooks = 8;

// Until `overdue` was called or a stop is wanted.
void Watch(const std::atomic<Time>& called,
           Duration limit,
           const std::function<void()>& overdue,
           const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stopped.wait_for(lock, stop, limit / kLooks, [&] { return stop.stop_requested(); })) {
    const Time began = called.load();
    if (began != kNever && SteadyClock().Now() - began >= limit) return overdue();
  }
}

}  // namespace

// While it lives the runner is being called.
class WatchedRunner::Call {
 public:
  explicit Call(WatchedRunner& of) : of_(of) { of_.called_ = SteadyClock().Now(); }
  ~Call() { of_.called_ = kNever; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  WatchedRunner& of_;
};

WatchedRunner::WatchedRunner(ModelRunner& runner, Duration limit, std::function<void()> overdue)
    : runner_(runner),
      thread_(StartThread("step-watch",
                          [this, limit, overdue = std::move(overdue)](const std::stop_token& stop) {
                            Watch(called_, limit, overdue, stop);
                          })) {}

Status WatchedRunner::Issue(const StepInput& input,
                            const KvView& kv,
                            std::span<const SamplingRow> sampling,
                            std::span<SampledToken> out,
                            const LayerWatch& watch) {
  const Call call(*this);
  return runner_.Issue(input, kv, sampling, out, watch);
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
