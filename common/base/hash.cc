#include "common/base/hash.h"

#include <pthread.h>
#include <sys/random.h>
#include <xxhash.h>
#ifdef BATON_XXHASH_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE  // the functions of xxhash.h keep their names
#include <xxh_x86dispatch.h>
#endif

#include <array>

#include "common/base/check.h"

namespace baton {
namespace {

// Ids that RandomId has yet to give out, to save calls of the system. getrandom gives 256 bytes at
// once, whatever signals come.
thread_local std::array<uint64_t, 32> ids;
thread_local size_t ids_left = 0;

#ifdef BATON_XXHASH_DISPATCH
// XXH3-128 by the widest vectors of this processor: twice the rate of xxhash.h's function, which is
// compiled for all processors.
XXH128_hash_t HashLong(std::span<const std::byte> bytes, uint64_t seed) {
  // The first call chooses the functions for all later ones, and must not run twice at once.
  static const XXH128_hash_t first =
      XXH3_128bits_withSeed_dispatch(bytes.data(), bytes.size(), seed);
  (void)first;
  return XXH3_128bits_withSeed_dispatch(bytes.data(), bytes.size(), seed);
}
#else
XXH128_hash_t HashLong(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
}
#endif

// From this size on HashLong is faster than a direct call.
constexpr size_t kLongBytes = 4096;

}  // namespace

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = bytes.size() >= kLongBytes
                                 ? HashLong(bytes, seed)
                                 : XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

uint64_t RandomId() {
  // The child of a fork must not give out the numbers of its parent.
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ids_left = 0; });
  BATON_CHECK(registered == 0, "pthread_atfork failed: {}", registered);
  if (ids_left == 0) {
    const ssize_t got = ::getrandom(ids.data(), sizeof(ids), 0);
    BATON_CHECK(got == sizeof(ids), "getrandom gave {} bytes", got);
    ids_left = ids.size();
  }
  return ids[--ids_left];
}

}  // namespace baton
