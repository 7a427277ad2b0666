#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

// XXH3-64, and copies, compiled for one instruction set. Every kernel gives the same results. Plain
// functions, because no other code may be compiled for an instruction set that the machine may
// lack.
struct Xxh3Kernel {
  void* (*create)();
  void (*destroy)(void* state);
  void (*reset)(void* state);
  void (*update)(void* state, const void* bytes, size_t size);
  uint64_t (*digest)(const void* state);
  uint64_t (*once)(const void* bytes, size_t size);
  // As memcpy. The copy of many bytes may bypass the cache; other threads see it in any case.
  void (*copy)(void* to, const void* from, size_t size);
  // As `copy`, and returns the hash of the bytes. Bytes at `from` that change meanwhile are hashed
  // as they are copied, or later: the hash never hides such a change.
  uint64_t (*copy_once)(void* to, const void* from, size_t size);
};

const Xxh3Kernel& Xxh3Portable();
#if defined(__x86_64__)
const Xxh3Kernel& Xxh3Avx2();
#endif

// The fastest kernel that this machine supports.
const Xxh3Kernel& BestXxh3();

}  // namespace baton
