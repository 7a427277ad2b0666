#include "tests/support/compare_meter.h"

#include <atomic>

namespace {

std::atomic<size_t> compared{0};

}  // namespace

extern "C" {

int memcmp(const void* left, const void* right, size_t size) {
  compared.fetch_add(1, std::memory_order_relaxed);
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (size_t i = 0; i < size; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

int bcmp(const void* left, const void* right, size_t size) {
  return memcmp(left, right, size);
}

}  // extern "C"

namespace baton {

CompareMeter::CompareMeter() : before_(compared) {}

size_t CompareMeter::count() const {
  return compared - before_;
}

}  // namespace baton
