#define XXH_VECTOR 2  // XXH_AVX2
#include <immintrin.h>

#include <cstring>

#include "kvtransfer/wire/xxh3_kernel_build.h"

namespace baton {
namespace {

// XXH3-64 of more than 240 bytes, as its specification describes it ("XXH3 algorithm for large
// inputs"): stripes of 64 bytes change eight accumulators of 64 bits, which are scrambled after
// each block of 16 stripes.
constexpr size_t kStripeBytes = 64;
constexpr size_t kBlockStripes = 16;
constexpr size_t kBlockBytes = kBlockStripes * kStripeBytes;
constexpr size_t kScrambleSecret = XXH_SECRET_DEFAULT_SIZE - kStripeBytes;
constexpr size_t kLastStripeSecret = kScrambleSecret - 7;
constexpr size_t kMergeSecret = 11;

// Fewer bytes are copied with stores that keep them in the cache.
constexpr size_t kMinStreamedBytes = 4096;

__m256i Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// With kStreams the bytes go to memory without a read of the line that they replace, and `to` is a
// multiple of 32.
template <bool kStreams>
void Store(uint8_t* to, __m256i bytes) {
  if constexpr (kStreams) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bytes);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  }
}

// Half of the accumulators, for one half of each stripe.
class Lanes final {
 public:
  explicit Lanes(const uint64_t* initial)
      : sums_(_mm256_load_si256(reinterpret_cast<const __m256i*>(initial))) {}

  void Add(__m256i bytes, const uint8_t* secret) {
    const __m256i keyed = _mm256_xor_si256(bytes, Load(secret));
    const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    const __m256i neighbours = _mm256_shuffle_epi32(bytes, _MM_SHUFFLE(1, 0, 3, 2));
    sums_ = _mm256_add_epi64(product, _mm256_add_epi64(sums_, neighbours));
  }

  void Scramble(const uint8_t* secret) {
    const __m256i prime = _mm256_set1_epi64x(XXH_PRIME32_1);
    const __m256i mixed =
        _mm256_xor_si256(_mm256_xor_si256(sums_, _mm256_srli_epi64(sums_, 47)), Load(secret));
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(mixed, 32), prime);
    sums_ = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64(high, 32));
  }

  void Put(uint64_t* to) const { _mm256_store_si256(reinterpret_cast<__m256i*>(to), sums_); }

 private:
  __m256i sums_;
};

// Each vector is stored and hashed from the same register.
template <bool kStreams>
uint64_t CopyLarge(uint8_t* to, const uint8_t* from, size_t size) {
  alignas(32) uint64_t sums[] = XXH3_INIT_ACC;
  Lanes low(sums);
  Lanes high(sums + 4);
  const auto stripe = [&](size_t at, const uint8_t* secret) {
    const __m256i first = Load(from + at);
    const __m256i second = Load(from + at + 32);
    Store<kStreams>(to + at, first);
    Store<kStreams>(to + at + 32, second);
    low.Add(first, secret);
    high.Add(second, secret + 32);
  };
  size_t at = 0;
  for (; at + kBlockBytes < size; at += kBlockBytes) {
    for (size_t i = 0; i < kBlockStripes; ++i) {
      stripe(at + i * kStripeBytes, XXH3_kSecret + i * 8);
    }
    low.Scramble(XXH3_kSecret + kScrambleSecret);
    high.Scramble(XXH3_kSecret + kScrambleSecret + 32);
  }
  for (size_t i = 0; at + kStripeBytes < size; ++i, at += kStripeBytes) {
    stripe(at, XXH3_kSecret + i * 8);
  }
  std::memcpy(to + at, from + at, size - at);
  // The last stripe ends with the input, and overlaps the one before it.
  low.Add(Load(from + size - kStripeBytes), XXH3_kSecret + kLastStripeSecret);
  high.Add(Load(from + size - kStripeBytes + 32), XXH3_kSecret + kLastStripeSecret + 32);
  low.Put(sums);
  high.Put(sums + 4);
  if constexpr (kStreams) _mm_sfence();
  const uint64_t hash = XXH3_mergeAccs(sums, XXH3_kSecret + kMergeSecret, size * XXH_PRIME64_1);
  LeaveAvx();
  return hash;
}

bool Streams(const void* to, size_t size) {
  return size >= kMinStreamedBytes && reinterpret_cast<uintptr_t>(to) % 32 == 0;
}

uint64_t CopyOnce(void* to, const void* from, size_t size) {
  auto* const target = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  if (Streams(to, size)) return CopyLarge<true>(target, source, size);
  if (size >= kBlockBytes) return CopyLarge<false>(target, source, size);
  std::memcpy(to, from, size);
  const uint64_t hash = XXH3_64bits(to, size);
  LeaveAvx();
  return hash;
}

void Copy(void* to, const void* from, size_t size) {
  if (!Streams(to, size)) {
    std::memcpy(to, from, size);
    return;
  }
  auto* const target = static_cast<uint8_t*>(to);
  const auto* const source = static_cast<const uint8_t*>(from);
  size_t at = 0;
  for (; at + kStripeBytes <= size; at += kStripeBytes) {
    Store<true>(target + at, Load(source + at));
    Store<true>(target + at + 32, Load(source + at + 32));
  }
  std::memcpy(target + at, source + at, size - at);
  _mm_sfence();
}

}  // namespace

const Xxh3Kernel& Xxh3Avx2() {
  static constexpr Xxh3Kernel kKernel = MakeKernel(&Copy, &CopyOnce);
  return kKernel;
}

}  // namespace baton
