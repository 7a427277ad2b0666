#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The checksum of a granule of KV bytes, whichever device or transport computes it: a tree of two
// levels. A granule is cut into parts, each of which has its XXH3-64 (seed 0). That of a single
// part is the checksum; of several, the checksum is the XXH3-64 of theirs, one after the other as
// little-endian 64-bit numbers.
namespace baton {

// Of every part of a granule but the last, which may be shorter. XXH3 joins the sums of 1,024 bytes
// each one after the other: parts are short, so that a GPU joins those of many side by side.
constexpr uint64_t kChecksumPartBytes = uint64_t{32} << 10;

// How many parts a granule of `bytes` bytes has.
constexpr uint64_t ChecksumParts(uint64_t bytes) {
  return (bytes + kChecksumPartBytes - 1) / kChecksumPartBytes;
}

// The size of part `index` of a granule of `bytes` bytes.
constexpr uint64_t ChecksumPartBytes(uint64_t bytes, uint64_t index) {
  const uint64_t left = bytes - index * kChecksumPartBytes;
  // Not std::min, which takes addresses: kernels have none of this constant, and would only trap.
  return left < kChecksumPartBytes ? left : kChecksumPartBytes;
}

// The checksum of a granule whose parts, in order, have the XXH3-64s `parts`; at least one.
uint64_t JoinChecksumParts(std::span<const uint64_t> parts);

// The checksum of the granule `bytes`, which is not empty.
uint64_t GranuleChecksum(std::span<const std::byte> bytes);

}  // namespace baton
