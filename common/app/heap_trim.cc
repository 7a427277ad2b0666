#include "common/app/heap_trim.h"

#include <malloc.h>

namespace baton {

bool HeapTrim::Tick(Time now) {
  if (now < next_look_) return false;
  next_look_ = now + interval_;
  if (::mallinfo2().fordblks <= max_free_) return false;
  return ::malloc_trim(0) == 1;
}

}  // namespace baton
