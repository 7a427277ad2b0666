#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace baton {

// Memory that is in use from op `first` to op `last` of a list, both included.
struct Lifetime {
  size_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
  std::optional<size_t> offset = {};  // where the memory must be; nothing: anywhere
};

// Where each of some lifetimes is in one piece of memory.
struct MemoryPlan {
  std::vector<size_t> offsets;  // multiples of kPlanAlignment
  size_t bytes = 0;             // of the whole piece
  size_t in_use = 0;            // LargestInUse
};
inline constexpr size_t kPlanAlignment = 256;

// Gives memory that is in use at the same time different places. The largest lifetimes are placed
// first, each at the lowest offset where it has room. While that needs more than LargestInUse, the
// lifetime at the end of the memory is placed earlier, some times; the smallest plan is returned.
// Lifetimes with an offset, which must not conflict with each other, keep it.
MemoryPlan PlanMemory(std::span<const Lifetime> lifetimes);

// The most bytes that are in use at one op. No plan needs less.
size_t LargestInUse(std::span<const Lifetime> lifetimes);

}  // namespace baton
