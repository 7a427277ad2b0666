#include "common/base/hash.h"

#include <pthread.h>
#include <sys/random.h>
#include <xxhash.h>

#include <array>

#include "common/base/check.h"
#include "common/base/hash_avx2.h"

namespace baton {
namespace {

#if defined(__x86_64__)
// Whether hash_avx2.h is faster. The code for at most 240 bytes uses no vectors.
bool UsesAvx2(size_t size) {
  constexpr size_t kLong = 1024;
  return size >= kLong && __builtin_cpu_supports("avx2");
}
#endif

// Ids that RandomId has yet to give out, to save calls of the system. getrandom gives 256 bytes at
// once, whatever signals come.
thread_local std::array<uint64_t, 32> ids;
thread_local size_t ids_left = 0;

}  // namespace

uint64_t Xxh3(std::span<const std::byte> bytes, uint64_t seed) {
#if defined(__x86_64__)
  if (UsesAvx2(bytes.size())) return Xxh3Avx2(bytes.data(), bytes.size(), seed);
#endif
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 Xxh3Wide(std::span<const std::byte> bytes, uint64_t seed) {
#if defined(__x86_64__)
  if (UsesAvx2(bytes.size())) {
    Hash128 hash;
    Xxh3WideAvx2(bytes.data(), bytes.size(), seed, hash.high, hash.low);
    return hash;
  }
#endif
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
