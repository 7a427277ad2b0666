#include "kernels/memory_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace baton {
namespace {

size_t Aligned(size_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

size_t OpsOf(std::span<const Lifetime> lifetimes) {
  size_t ops = 0;
  for (const Lifetime& one : lifetimes) ops = std::max(ops, one.last + 1);
  return ops;
}

using Order = std::vector<size_t>;  // indices of lifetimes

// Places lifetimes in a given order.
class Planner {
 public:
  explicit Planner(std::span<const Lifetime> lifetimes)
      : lifetimes_(lifetimes), placed_(OpsOf(lifetimes)), seen_(lifetimes.size(), 0) {}

  MemoryPlan Run(const Order& order) {
    plan_ = {.offsets = std::vector<size_t>(lifetimes_.size())};
    for (std::vector<size_t>& at : placed_) at.clear();
    std::ranges::fill(seen_, size_t{0});
    last_ = 0;
    for (const size_t index : order) Place(index);
    return plan_;
  }
  // The lifetime that ends the memory of the last plan.
  size_t last() const { return last_; }

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  void Place(size_t index) {
    const Lifetime& one = lifetimes_[index];
    const size_t bytes = Aligned(one.bytes);
    const size_t offset = one.offset ? *one.offset : LowestFree(index, bytes);
    plan_.offsets[index] = offset;
    if (offset + bytes > plan_.bytes) {
      plan_.bytes = offset + bytes;
      last_ = index;
    }
    for (size_t op = one.first; op <= one.last; ++op) placed_[op].push_back(index);
  }

  size_t LowestFree(size_t index, size_t bytes) {
    const Lifetime& one = lifetimes_[index];
    taken_.clear();
    for (size_t op = one.first; op <= one.last; ++op) {
      for (const size_t other : placed_[op]) {
        if (seen_[other] == index + 1) continue;
        seen_[other] = index + 1;
        const size_t begin = plan_.offsets[other];
        taken_.push_back({begin, begin + Aligned(lifetimes_[other].bytes)});
      }
    }
    std::ranges::sort(taken_, {}, &Range::begin);
    size_t offset = 0;
    for (const Range& range : taken_) {
      if (range.begin >= offset + bytes) break;
      offset = std::max(offset, range.end);
    }
    return offset;
  }

  const std::span<const Lifetime> lifetimes_;
  std::vector<std::vector<size_t>> placed_;  // by op: the lifetimes that have a place
  std::vector<size_t> seen_;  // by lifetime: 1 + the one whose neighbours it was last added to
  std::vector<Range> taken_;
  MemoryPlan plan_;
  size_t last_ = 0;
};

// Those with an offset first, then the largest. Equal ones keep the order of the list, so that a
// plan depends on the list alone.
Order LargestFirst(std::span<const Lifetime> lifetimes) {
  Order order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const bool fixed = lifetimes[a].offset.has_value();
    if (fixed != lifetimes[b].offset.has_value()) return fixed;
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  return order;
}

// Lets a lifetime have its turn in half the time, but not before those with an offset. Returns
// whether the order has changed.
bool Advance(Order& order, size_t index, size_t fixed) {
  const auto at = std::ranges::find(order, index);
  const auto to = order.begin() + static_cast<std::ptrdiff_t>(
                                      std::max(static_cast<size_t>(at - order.begin()) / 2, fixed));
  if (to >= at) return false;
  std::rotate(to, at, at + 1);
  return true;
}

}  // namespace

MemoryPlan PlanMemory(std::span<const Lifetime> lifetimes) {
  constexpr int kMaxPlans = 32;
  const size_t bound = LargestInUse(lifetimes);
  const auto fixed = static_cast<size_t>(
      std::ranges::count_if(lifetimes, [](const Lifetime& one) { return one.offset.has_value(); }));
  Planner planner(lifetimes);
  Order order = LargestFirst(lifetimes);
  MemoryPlan best = planner.Run(order);
  for (int plans = 1; plans < kMaxPlans && best.bytes > bound; ++plans) {
    if (!Advance(order, planner.last(), fixed)) break;
    MemoryPlan plan = planner.Run(order);
    if (plan.bytes < best.bytes) best = std::move(plan);
  }
  best.in_use = bound;
  return best;
}

size_t LargestInUse(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> in_use(OpsOf(lifetimes), 0);
  for (const Lifetime& one : lifetimes) {
    for (size_t op = one.first; op <= one.last; ++op) in_use[op] += Aligned(one.bytes);
  }
  return in_use.empty() ? 0 : *std::ranges::max_element(in_use);
}

}  // namespace baton
