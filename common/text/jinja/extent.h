#pragma once

#include <cstddef>

namespace baton::jinja {

// How large a value is when written out in full. Work on whole values is bounded by it.
struct Extent {
  int depth = 0;      // levels of containers
  size_t weight = 1;  // values inside, and 1 for each 128 bytes of text

  // Takes in one item of the container that this is of.
  void Include(Extent item);
};

}  // namespace baton::jinja
