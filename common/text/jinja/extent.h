#pragma once

#include <cstddef>

namespace baton::jinja {

// The size of a value when it is written out in full. It bounds the work on whole values.
struct Extent {
  int depth = 0;      // levels of containers
  size_t weight = 1;  // number of values inside, plus 1 for each 128 bytes of text

  // Adds one item to the extent of a container.
  void Include(Extent item);
};

}  // namespace baton::jinja
