#pragma once

#include <cstddef>

namespace baton {

// How much memory this process takes from operator new while this lives. One at a time; a binary
// that has one replaces operator new and delete.
class AllocationMeter final {
 public:
  AllocationMeter();

  // The most bytes at once, beyond those of the beginning.
  size_t peak() const;

 private:
  size_t before_;
};

}  // namespace baton
