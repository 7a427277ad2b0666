#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BATON_ON_DEVICE __host__ __device__
#else
#define BATON_ON_DEVICE
#endif

namespace baton {

// A random number in [-1, 1) that depends on its arguments alone: SplitMix64 (Steele, Lea, Flood
// 2014) in counter mode. All backends draw the same weights.
BATON_ON_DEVICE inline float UniformWeight(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int32_t>(z >> 40) - (1 << 23)) / (1 << 23);
}

}  // namespace baton
