#pragma once

#include <cstddef>

namespace baton {

// Measures the memory that this process allocates with operator new during the meter's lifetime.
// Only one meter may exist at a time. A binary that links this file replaces operator new and
// delete.
class AllocationMeter final {
 public:
  AllocationMeter();

  // The peak number of allocated bytes, minus the bytes allocated at construction.
  size_t peak() const;

 private:
  size_t before_;
};

}  // namespace baton
