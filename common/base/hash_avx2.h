#pragma once

#include <cstddef>
#include <cstdint>

// The hashes of hash.h for processors with AVX2. The file that defines them is compiled for AVX2,
// and includes no header of C++, whose inline functions other files would share.
namespace baton {

uint64_t Xxh3Avx2(const void* bytes, size_t size, uint64_t seed);
void Xxh3WideAvx2(const void* bytes, size_t size, uint64_t seed, uint64_t& high, uint64_t& low);

}  // namespace baton
