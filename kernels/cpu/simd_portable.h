#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half.h"

namespace baton::cpu {
namespace {

// Vectors of 16 lanes in plain C++. They define the results that the other instruction sets must
// compute.
struct Portable {
  // The most vectors of sums in a RegisterTile.
  static constexpr int kTileVectors = 4;
  // The most rows of a tile that unpacks its weights in registers, and the most rows of activations
  // for which such tiles are faster than weights that are unpacked once.
  static constexpr int kPackedTileRows = 4;
  static constexpr int kPackedRows = 4;
  // The most rows of a tile of float weights.
  static constexpr int kFloatTileRows = 4;

  struct F {
    float lane[16];
  };
  struct I {
    int32_t lane[16];
  };
  using D = I;

  template <class Op>
  static F Each(const Op& op) {
    F r;
    for (int i = 0; i < 16; ++i) r.lane[i] = op(i);
    return r;
  }
  template <class Op>
  static I EachInt(const Op& op) {
    I r;
    for (int i = 0; i < 16; ++i) r.lane[i] = op(i);
    return r;
  }

  static F Set(float x) {
    return Each([&](int) { return x; });
  }
  static F Load(const float* p) {
    return Each([&](int i) { return p[i]; });
  }
  // Loads the first n lanes; the others are 0.
  static F LoadPart(const float* p, int n) {
    return Each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void Store(float* p, const F& a) { std::memcpy(p, a.lane, sizeof(a.lane)); }
  static void StorePart(float* p, const F& a, int n) {
    for (int i = 0; i < n; ++i) p[i] = a.lane[i];
  }
  static F Add(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static F Sub(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static F Mul(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static F Div(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // a·b + c with one rounding.
  static F Fma(const F& a, const F& b, const F& c) {
    return Each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  // The result is b where a or b is NaN, as with MAXPS of x86.
  static F Max(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static F Min(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  // a where x is not less than `limit` (also where x is NaN), else 0.
  static F KeepFrom(const F& limit, const F& x, const F& a) {
    return Each([&](int i) { return x.lane[i] < limit.lane[i] ? 0.0f : a.lane[i]; });
  }
  // Lane i of a when first ≤ i < last, else lane i of b.
  static F Select(int first, int last, const F& a, const F& b) {
    return Each([&](int i) { return i >= first && i < last ? a.lane[i] : b.lane[i]; });
  }
  // Adds lanes that are 8 apart, then 4, 2 and 1.
  static float Sum(const F& a) {
    float s[16];
    std::memcpy(s, a.lane, sizeof(s));
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) s[i] += s[i + half];
    }
    return s[0];
  }
  static float MaxLane(const F& a) {
    float s[16];
    std::memcpy(s, a.lane, sizeof(s));
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) s[i] = s[i] > s[i + half] ? s[i] : s[i + half];
    }
    return s[0];
  }

  static F LoadHalf(const uint16_t* p) {
    return Each([&](int i) { return FloatFromHalf(p[i]); });
  }
  static F LoadBf16(const uint16_t* p) {
    return Each([&](int i) { return FloatFromBf16(p[i]); });
  }
  // FP8 numbers (E4M3), 2^-8 of them, without NaN: with two more bits of exponent, they are halves.
  static F LoadFp8(const std::byte* p) {
    return Each([&](int i) {
      const auto bits = static_cast<uint32_t>(p[i]);
      return FloatFromHalf(static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7));
    });
  }
  static void StoreHalf(uint16_t* p, const F& a) {
    for (int i = 0; i < 16; ++i) p[i] = HalfFromFloat(a.lane[i]);
  }
  static void StoreBf16(uint16_t* p, const F& a) {
    for (int i = 0; i < 16; ++i) p[i] = Bf16FromFloat(a.lane[i]);
  }

  static I SetInt(int32_t x) {
    return EachInt([&](int) { return x; });
  }
  static I LoadInt(const void* p) {
    I r;
    std::memcpy(r.lane, p, sizeof(r.lane));
    return r;
  }
  static I LoadBytes(const std::byte* p) {
    return EachInt([&](int i) { return static_cast<int32_t>(p[i]); });
  }
  static I LoadSignedBytes(const std::byte* p) {
    return EachInt([&](int i) { return int32_t{static_cast<int8_t>(p[i])}; });
  }
  static I Bits(const F& a) {
    I r;
    std::memcpy(r.lane, a.lane, sizeof(r.lane));
    return r;
  }
  static F FromBits(const I& a) {
    F r;
    std::memcpy(r.lane, a.lane, sizeof(r.lane));
    return r;
  }
  static I AddInt(const I& a, const I& b) {
    return EachInt([&](int i) { return static_cast<int32_t>(Unsigned(a, i) + Unsigned(b, i)); });
  }
  static I SubInt(const I& a, const I& b) {
    return EachInt([&](int i) { return static_cast<int32_t>(Unsigned(a, i) - Unsigned(b, i)); });
  }
  static I MaxInt(const I& a, const I& b) {
    return EachInt([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static I And(const I& a, const I& b) {
    return EachInt([&](int i) { return a.lane[i] & b.lane[i]; });
  }
  // a | (b & mask).
  static I OrMasked(const I& a, const I& b, const I& mask) {
    return EachInt([&](int i) { return a.lane[i] | (b.lane[i] & mask.lane[i]); });
  }
  static F FromInt(const I& a) { return ToFloat(a); }
  template <int kBits>
  static I ShiftLeft(const I& a) {
    return EachInt([&](int i) { return static_cast<int32_t>(Unsigned(a, i) << kBits); });
  }
  template <int kBits>
  static I ShiftRight(const I& a) {
    return EachInt([&](int i) { return static_cast<int32_t>(Unsigned(a, i) >> kBits); });
  }
  static I ShiftRightBy(const I& a, int bits) {
    return EachInt([&](int i) { return static_cast<int32_t>(Unsigned(a, i) >> bits); });
  }
  // Shifts each 16-bit half of a lane.
  template <int kBits>
  static I ShiftRight16(const I& a) {
    constexpr uint32_t kHalf = 0xffffu >> kBits;
    return EachInt([&](int i) {
      return static_cast<int32_t>(Unsigned(a, i) >> kBits & (kHalf << 16 | kHalf));
    });
  }
  static D SetDot(int32_t x) { return SetInt(x); }
  static D AddDot(const D& a, const D& b) { return AddInt(a, b); }
  static F ToFloat(const I& a) {
    return Each([&](int i) { return static_cast<float>(a.lane[i]); });
  }
  static int32_t SumInt(const I& a) {
    int32_t sum = 0;
    for (int32_t lane : a.lane) sum += lane;
    return sum;
  }
  static int32_t MaxLaneInt(const I& a) {
    int32_t max = a.lane[0];
    for (int32_t lane : a.lane) max = max > lane ? max : lane;
    return max;
  }
  // Stores the low 16 bits of each lane.
  static void StoreInt16(int16_t* p, const I& a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(a.lane[i]);
  }

  // Each lane of a and b has two 16-bit integers: acc + low·low + high·high.
  static I DotPairs(const I& acc, const I& a, const I& b) {
    return EachInt([&](int i) {
      const int32_t low = static_cast<int16_t>(a.lane[i]) * static_cast<int16_t>(b.lane[i]);
      const int32_t high = (a.lane[i] >> 16) * (b.lane[i] >> 16);
      return acc.lane[i] + low + high;
    });
  }
  // EvenBytes sign-extends bytes 0 and 2 of each lane to two 16-bit integers, OddBytes bytes 1 and
  // 3.
  // Bits 4·index … 4·index + 3 of each 16-bit half of a lane.
  static I Nibbles(const I& a, int index) {
    return EachInt([&](int i) { return (a.lane[i] >> 4 * index) & 0x000f000f; });
  }
  // Keeps `a` in registers and the additions to it in their order. Otherwise a compiler that
  // computes all products first would need more registers than there are.
  static void Pin(D&) {}
  template <class T>
  static void Keep(T& memory) {
    asm volatile("" : "+m"(memory));
  }
  static I EvenBytes(const I& a) {
    return EachInt([&](int i) { return Pair(a.lane[i] << 24 >> 24, a.lane[i] << 8 >> 24); });
  }
  static I OddBytes(const I& a) {
    return EachInt([&](int i) { return Pair(a.lane[i] << 16 >> 24, a.lane[i] >> 24); });
  }
  // The numbers of the table at the index that each byte is; the high bits of the bytes are 0.
  static I TableBytes(const I& a, const int8_t (&table)[16]) {
    return EachInt([&](int i) {
      uint32_t bytes = 0;
      for (int at = 0; at < 32; at += 8) {
        const auto number = static_cast<uint8_t>(table[Unsigned(a, i) >> at & 15]);
        bytes |= uint32_t{number} << at;
      }
      return static_cast<int32_t>(bytes);
    });
  }

 private:
  static uint32_t Unsigned(const I& a, int i) { return static_cast<uint32_t>(a.lane[i]); }
  static int32_t Pair(int32_t low, int32_t high) {
    return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffff) | static_cast<uint32_t>(high)
                                                                            << 16);
  }
};

}  // namespace
}  // namespace baton::cpu
