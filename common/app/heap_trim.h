#pragma once

#include <cstddef>

#include "common/base/clock.h"

namespace baton {

// Gives memory that the C library's malloc keeps after large messages back to the system. The
// library itself returns only the free end of a heap, and one small block behind hundreds of
// megabytes is enough to keep them. Other threads wait for a heap while it is trimmed, about 0.1 ms
// for each MiB, so this is done seldom. Does nothing for a program that links another malloc. One
// thread.
class HeapTrim final {
 public:
  // Looks each `interval`, and trims when malloc keeps more than `max_free` bytes and the resident
  // memory has grown by more than that since the last time.
  explicit HeapTrim(Duration interval = std::chrono::seconds(30),
                    size_t max_free = size_t{64} << 20)
      : interval_(interval), max_free_(max_free) {}

  // To be called often. Returns whether memory was given back.
  bool Tick(Time now);

 private:
  const Duration interval_;
  const size_t max_free_;
  size_t trimmed_ = 0;  // the resident bytes after the last time
  Time next_look_{};
};

}  // namespace baton
