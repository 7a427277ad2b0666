#define XXH_VECTOR 2  // XXH_AVX2
#include "common/base/hash_avx2.h"

#include "common/base/xxhash_inline.h"

namespace baton {

uint64_t Xxh3Avx2(const void* bytes, size_t size, uint64_t seed) {
  const uint64_t hash = XXH3_64bits_withSeed(bytes, size, seed);
  LeaveAvx();
  return hash;
}

void Xxh3WideAvx2(const void* bytes, size_t size, uint64_t seed, uint64_t& high, uint64_t& low) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, size, seed);
  LeaveAvx();
  high = hash.high64;
  low = hash.low64;
}

}  // namespace baton
