#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>

namespace baton {

// Moves items from the front of `from` to `to`, in their order, until one of the two has no more.
// Returns their number.
template <class Item>
size_t TakeFront(std::deque<Item>& from, std::span<Item> to) {
  const size_t count = std::min(from.size(), to.size());
  for (size_t i = 0; i < count; ++i) {
    to[i] = std::move(from.front());
    from.pop_front();
  }
  return count;
}

}  // namespace baton
