#include "common/base/hash.h"

#include <sys/random.h>
#include <xxhash.h>

#include <array>

#include "common/base/check.h"

namespace baton {

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

uint64_t RandomId() {
  // 256 bytes: getrandom gives them at once, whatever signals come.
  thread_local std::array<uint64_t, 32> ids;
  thread_local size_t left = 0;
  if (left == 0) {
    const ssize_t got = ::getrandom(ids.data(), sizeof(ids), 0);
    BATON_CHECK(got == sizeof(ids), "getrandom gave {} bytes", got);
    left = ids.size();
  }
  return ids[--left];
}

}  // namespace baton
