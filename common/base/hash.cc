#include "common/base/hash.h"

#include <pthread.h>
#include <sys/random.h>
#include <xxhash.h>

#include <array>

#include "common/base/check.h"

namespace baton {
namespace {

// Ids that RandomId has yet to give out, to save calls of the system. getrandom gives 256 bytes at
// once, whatever signals come.
thread_local std::array<uint64_t, 32> ids;
thread_local size_t ids_left = 0;

}  // namespace

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
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
