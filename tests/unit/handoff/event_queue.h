#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/base/clock.h"

namespace baton {

// The virtual time, the randomness and the verdict of a simulation, which is a function of `seed`.
class EventQueue final {
 public:
  explicit EventQueue(uint64_t seed) : random_(seed) {}

  Time now() const { return now_; }
  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }
  // A number in [0, bound).
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  // The delay of a message: messages overtake each other.
  Duration Delay() { return std::chrono::microseconds(Below(20'000)); }

  void At(Duration delay, std::function<void()> event) {
    events_.emplace(now_ + delay, std::move(event));
  }
  // Runs events until `end`, or until an invariant is broken.
  void RunUntil(Time end) {
    while (!events_.empty() && events_.begin()->first <= end && violation_.empty()) {
      now_ = events_.begin()->first;
      const std::function<void()> event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
  }

  void Violate(const std::string& what) {
    if (violation_.empty()) {
      violation_ = fmt::format("{} at {:.3f} s", what, ToSeconds(now_ - kStart));
    }
  }
  // The first broken invariant, or empty.
  const std::string& violation() const { return violation_; }

 private:
  static constexpr Time kStart{std::chrono::hours(1)};

  std::mt19937_64 random_;
  Time now_ = kStart;
  std::multimap<Time, std::function<void()>> events_;
  std::string violation_;
};

// Delays messages but keeps their order.
class OrderedChannel final {
 public:
  explicit OrderedChannel(EventQueue& events) : events_(events) {}

  void Post(std::function<void()> message) {
    arrives_ = std::max(arrives_, events_.now() + events_.Delay());
    events_.At(arrives_ - events_.now(), std::move(message));
  }

 private:
  EventQueue& events_;
  Time arrives_{};
};

}  // namespace baton
