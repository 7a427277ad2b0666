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

// Bytes that are in use at each op.
std::vector<size_t> BytesInUse(std::span<const Lifetime> lifetimes) {
  std::vector<size_t> in_use(OpsOf(lifetimes), 0);
  for (const Lifetime& one : lifetimes) {
    for (size_t op = one.first; op <= one.last; ++op) in_use[op] += Aligned(one.bytes);
  }
  return in_use;
}

// Places lifetimes in a given order.
class Planner {
 public:
  explicit Planner(std::span<const Lifetime> lifetimes)
      : lifetimes_(lifetimes), placed_(OpsOf(lifetimes)), seen_(lifetimes.size(), 0) {}

  MemoryPlan Run(const Order& order) {
    plan_ = {.offsets = std::vector<size_t>(lifetimes_.size()), .bytes = 0};
    for (std::vector<size_t>& at : placed_) at.clear();
    std::ranges::fill(seen_, size_t{0});
    for (const size_t index : order) Place(index);
    return plan_;
  }

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
    plan_.bytes = std::max(plan_.bytes, offset + bytes);
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
};

// The lifetimes with an offset first, then those for which `comes_before` holds. Equal ones keep
// the order of the list, so that a plan depends on the list alone.
template <class Before>
Order Sorted(std::span<const Lifetime> lifetimes, const Before& comes_before) {
  Order order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const bool fixed = lifetimes[a].offset.has_value();
    if (fixed != lifetimes[b].offset.has_value()) return fixed;
    return comes_before(lifetimes[a], lifetimes[b]);
  });
  return order;
}

bool IsLarger(const Lifetime& a, const Lifetime& b) {
  return a.bytes > b.bytes;
}

bool IsLonger(const Lifetime& a, const Lifetime& b) {
  const size_t length = a.last - a.first;
  const size_t other = b.last - b.first;
  return length != other ? length > other : a.bytes > b.bytes;
}

// By the most memory that is in use while the lifetime lasts, then by size.
Order ByCrowd(std::span<const Lifetime> lifetimes, std::span<const size_t> in_use) {
  const auto crowd = [&](const Lifetime& one) {
    return *std::max_element(in_use.begin() + static_cast<std::ptrdiff_t>(one.first),
                             in_use.begin() + static_cast<std::ptrdiff_t>(one.last) + 1);
  };
  return Sorted(lifetimes, [&](const Lifetime& a, const Lifetime& b) {
    const size_t most = crowd(a);
    const size_t other = crowd(b);
    return most != other ? most > other : a.bytes > b.bytes;
  });
}

}  // namespace

MemoryPlan PlanMemory(std::span<const Lifetime> lifetimes) {
  const std::vector<size_t> in_use = BytesInUse(lifetimes);
  const size_t bound = in_use.empty() ? 0 : *std::ranges::max_element(in_use);
  Planner planner(lifetimes);
  MemoryPlan best = planner.Run(Sorted(lifetimes, IsLarger));
  const auto improve = [&](const Order& order) {
    MemoryPlan plan = planner.Run(order);
    if (plan.bytes < best.bytes) best = std::move(plan);
  };
  if (best.bytes > bound) improve(Sorted(lifetimes, IsLonger));
  if (best.bytes > bound) improve(ByCrowd(lifetimes, in_use));
  return best;
}

size_t LargestInUse(std::span<const Lifetime> lifetimes) {
  const std::vector<size_t> in_use = BytesInUse(lifetimes);
  return in_use.empty() ? 0 : *std::ranges::max_element(in_use);
}

}  // namespace baton
