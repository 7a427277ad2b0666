#pragma once

// Included by one source file for each instruction set; see xxhash_inline.h.
#include "common/base/xxhash_inline.h"
#include "kvtransfer/wire/xxh3_kernel.h"

namespace baton {
namespace {

constexpr Xxh3Kernel MakeKernel(decltype(Xxh3Kernel::copy) copy,
                                decltype(Xxh3Kernel::copy_once) copy_once) {
  return {
      []() -> void* { return XXH3_createState(); },
      [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); },
      [](void* state) {
        XXH3_64bits_reset(static_cast<XXH3_state_t*>(state));
        LeaveAvx();
      },
      [](void* state, const void* bytes, size_t size) {
        XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
        LeaveAvx();
      },
      [](const void* state) -> uint64_t {
        const uint64_t hash = XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
        LeaveAvx();
        return hash;
      },
      [](const void* bytes, size_t size) -> uint64_t {
        const uint64_t hash = XXH3_64bits(bytes, size);
        LeaveAvx();
        return hash;
      },
      copy,
      copy_once,
  };
}

}  // namespace
}  // namespace baton
