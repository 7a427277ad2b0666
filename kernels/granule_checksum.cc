#include "kernels/granule_checksum.h"

#include <bit>
#include <vector>

#include "common/base/hash.h"

namespace baton {

static_assert(std::endian::native == std::endian::little, "sums of parts are hashed as they lie");

uint64_t JoinChecksumParts(std::span<const uint64_t> parts) {
  return parts.size() == 1 ? parts[0] : Xxh3(std::as_bytes(parts));
}

uint64_t GranuleChecksum(std::span<const std::byte> bytes) {
  std::vector<uint64_t> parts(ChecksumParts(bytes.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = Xxh3(bytes.subspan(i * kChecksumPartBytes, ChecksumPartBytes(bytes.size(), i)));
  }
  return JoinChecksumParts(parts);
}

}  // namespace baton
