#include "router/keyed_threads.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/exception_border.h"
#include "common/base/thread.h"
#include "common/log/log.h"

namespace baton::router {
namespace {

const Logger kLog("router");

}  // namespace

KeyedThreads::KeyedThreads(const std::string& name, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane* lane = lanes_.back().get();
    lane->thread =
        StartThread(fmt::format("{}-{}", name, i), [lane](const std::stop_token&) { Run(*lane); });
  }
}

KeyedThreads::~KeyedThreads() {
  for (auto& lane : lanes_) {
    {
      std::lock_guard lock(lane->mutex);
      lane->stopped = true;
    }
    lane->ready.notify_all();
  }
  for (auto& lane : lanes_) lane->thread.join();
}

void KeyedThreads::Post(uint64_t key, std::function<void()> run) {
  Lane& lane = *lanes_[key % lanes_.size()];
  {
    std::lock_guard lock(lane.mutex);
    lane.queue.push_back(std::move(run));
  }
  lane.ready.notify_one();
}

void KeyedThreads::Run(Lane& lane) {
  while (true) {
    std::vector<std::function<void()>> batch;
    {
      std::unique_lock lock(lane.mutex);
      // The wait is bounded, but correctness does not depend on a wake-up without a notification.
      lane.ready.wait_for(
          lock, std::chrono::seconds(1), [&] { return lane.stopped || !lane.queue.empty(); });
      if (lane.stopped) return;
      batch.swap(lane.queue);
    }
    for (auto& run : batch) {
      if (const auto thrown = CaughtFrom(run))
        kLog.Error("a delivery to a client failed: {}", *thrown);
    }
  }
}

}  // namespace baton::router
