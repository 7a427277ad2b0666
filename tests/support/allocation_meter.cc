#include "tests/support/allocation_meter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> taken{0};
std::atomic<size_t> highest{0};

// Returns null when the allocation fails.
void* TryTake(size_t size) {
  void* memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) return nullptr;
  const size_t now = taken += malloc_usable_size(memory);
  size_t seen = highest;
  while (seen < now && !highest.compare_exchange_weak(seen, now)) {
  }
  return memory;
}

void* Take(size_t size) {
  void* memory = TryTake(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Give(void* memory) {
  if (memory != nullptr) taken -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  return Take(size);
}
void* operator new[](size_t size) {
  return Take(size);
}
// Replaced as well, because AddressSanitizer has its own nothrow forms. With only some forms
// replaced, an allocation and its deallocation would not both be counted.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return TryTake(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return TryTake(size);
}
void operator delete(void* memory) noexcept {
  Give(memory);
}
void operator delete[](void* memory) noexcept {
  Give(memory);
}
void operator delete(void* memory, size_t) noexcept {
  Give(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  Give(memory);
}

namespace baton {

AllocationMeter::AllocationMeter() : before_(taken) {
  highest = before_;
}

size_t AllocationMeter::peak() const {
  return std::max<size_t>(highest, before_) - before_;
}

}  // namespace baton
