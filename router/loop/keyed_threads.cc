#include "router/loop/keyed_threads.h"

#include <chrono>
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
  for (auto& lane : lanes_) lane->mailbox.Close();
  for (auto& lane : lanes_) lane->thread.join();
}

void KeyedThreads::Post(std::vector<Job> jobs) {
  std::vector<std::vector<std::function<void()>>> of_lane(lanes_.size());
  for (Job& job : jobs) of_lane[job.key % lanes_.size()].push_back(std::move(job.run));
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->mailbox.PostAll(std::move(of_lane[i]));
}

void KeyedThreads::Run(Lane& lane) {
  while (true) {
    // The wait is bounded, but correctness does not depend on a wake-up without a message.
    lane.mailbox.Wait(std::chrono::seconds(1));
    if (lane.mailbox.closed()) return;
    for (const auto& run : lane.mailbox.TakeAll()) {
      if (const auto thrown = CaughtFrom(run))
        kLog.Error("a delivery to a client failed: {}", *thrown);
    }
  }
}

}  // namespace baton::router
