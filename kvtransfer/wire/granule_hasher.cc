#include "kvtransfer/wire/granule_hasher.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "kernels/granule_checksum.h"

namespace baton {

GranuleHasher::GranuleHasher(const Xxh3Kernel& kernel) : kernel_(kernel), state_(kernel.create()) {
  BATON_CHECK(state_ != nullptr, "out of memory for a hash state");
}

GranuleHasher::~GranuleHasher() {
  kernel_.destroy(state_);
}

void GranuleHasher::Start(uint64_t granule) {
  granule_ = granule;
  parts_.clear();
  filled_ = 0;
  checksums_.clear();
}

void GranuleHasher::Copy(std::byte* to, std::span<const std::byte> bytes) {
  if (granule_ == 0) return kernel_.copy(to, bytes.data(), bytes.size());
  Add(bytes, to);
}

void GranuleHasher::Add(std::span<const std::byte> bytes, std::byte* to) {
  if (granule_ == 0) return;
  while (!bytes.empty()) {
    const uint64_t part = ChecksumPartBytes(granule_, parts_.size());
    const size_t taken = std::min<uint64_t>(bytes.size(), part - filled_);
    if (taken == part) {
      parts_.push_back(to == nullptr ? kernel_.once(bytes.data(), part)
                                     : kernel_.copy_once(to, bytes.data(), part));
    } else {
      if (to != nullptr) std::memcpy(to, bytes.data(), taken);
      if (filled_ == 0) kernel_.reset(state_);
      // Not from `to`: loads would wait for the stores of the copy.
      kernel_.update(state_, bytes.data(), taken);
      filled_ += taken;
      if (filled_ == part) {
        parts_.push_back(kernel_.digest(state_));
        filled_ = 0;
      }
    }
    bytes = bytes.subspan(taken);
    if (to != nullptr) to += taken;
    if (parts_.size() < ChecksumParts(granule_)) continue;
    checksums_.push_back(JoinChecksumParts(parts_));
    parts_.clear();
  }
}

}  // namespace baton
