#pragma once

#include <cstddef>

namespace baton {

// Counts how often this process has compared the bytes of two texts (calls of memcmp and bcmp), so
// that a test can bound the work of a search without a clock. A binary that links this file
// replaces both functions.
class CompareMeter final {
 public:
  CompareMeter();

  // The number of comparisons since construction.
  size_t count() const;

 private:
  size_t before_;
};

}  // namespace baton
