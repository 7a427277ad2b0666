#include "common/base/hash.h"

#include <sys/random.h>
#include <xxhash.h>

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
  uint64_t id = 0;
  const ssize_t got = ::getrandom(&id, sizeof(id), 0);
  BATON_CHECK(got == sizeof(id), "getrandom gave {} bytes", got);
  return id;
}

}  // namespace baton
