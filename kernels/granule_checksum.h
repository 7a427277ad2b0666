#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The checksum of a granule of KV bytes, the same on all devices and transports: a tree of two
// levels. A granule is divided into parts, and each part is hashed with XXH3-64 (seed 0). If there
// is one part, its hash is the checksum. If there are several, the checksum is the XXH3-64 of their
// hashes, concatenated as little-endian 64-bit numbers.
namespace baton {

// Bytes of a part; the last part of a granule may be shorter. XXH3 combines blocks of 1,024 bytes
// sequentially. Parts are short, so that a GPU can do this for many parts in parallel.
constexpr uint64_t kChecksumPartBytes = uint64_t{32} << 10;

// How many parts a granule of `bytes` bytes has.
constexpr uint64_t ChecksumParts(uint64_t bytes) {
  return (bytes + kChecksumPartBytes - 1) / kChecksumPartBytes;
}

// The size of part `index` of a granule of `bytes` bytes.
constexpr uint64_t ChecksumPartBytes(uint64_t bytes, uint64_t index) {
  const uint64_t left = bytes - index * kChecksumPartBytes;
  // Not std::min, which takes references: device code has no address of this constant, and would
  // trap.
  return left < kChecksumPartBytes ? left : kChecksumPartBytes;
}

// The checksum of a granule from the XXH3-64s of its parts, in order. `parts` must not be empty.
uint64_t JoinChecksumParts(std::span<const uint64_t> parts);

// The checksum of the granule `bytes`, which must not be empty.
uint64_t GranuleChecksum(std::span<const std::byte> bytes);

}  // namespace baton
