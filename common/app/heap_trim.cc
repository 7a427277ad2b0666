#include "common/app/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace baton {
namespace {

size_t ResidentBytes() {
  size_t total_pages = 0;
  size_t resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

bool HeapTrim::Tick(Time now) {
  if (now < next_look_) return false;
  next_look_ = now + interval_;
  // malloc counts what was given back as free, too, so the resident memory must have grown since.
  if (::mallinfo2().fordblks <= max_free_ || ResidentBytes() <= trimmed_ + max_free_) return false;
  ::malloc_trim(0);
  trimmed_ = ResidentBytes();
  return true;
}

}  // namespace baton
