#pragma once

// Included by one source file per instruction set, which first defines XXH_VECTOR if it needs to.
// All of xxhash is then static to that file.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kvtransfer/wire/xxh3_kernel.h"

namespace baton {
namespace {

constexpr Xxh3Kernel MakeKernel(decltype(Xxh3Kernel::copy) copy,
                                decltype(Xxh3Kernel::copy_once) copy_once) {
  return {
      []() -> void* { return XXH3_createState(); },
      [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); },
      [](void* state) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state)); },
      [](void* state, const void* bytes, size_t size) {
        XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
      },
      [](const void* state) -> uint64_t {
        return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
      },
      [](const void* bytes, size_t size) -> uint64_t { return XXH3_64bits(bytes, size); },
      copy,
      copy_once,
  };
}

}  // namespace
}  // namespace baton
