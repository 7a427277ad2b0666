#include "kvtransfer/wire/granule_hasher.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {

GranuleHasher::GranuleHasher(const Xxh3Kernel& kernel) : kernel_(kernel), state_(kernel.create()) {
  BATON_CHECK(state_ != nullptr, "out of memory for a hash state");
}

GranuleHasher::~GranuleHasher() {
  kernel_.destroy(state_);
}

void GranuleHasher::Start(uint64_t granule) {
  granule_ = granule;
  filled_ = 0;
  checksums_.clear();
}

void GranuleHasher::Update(std::span<const std::byte> bytes) {
  if (granule_ == 0) return;
  while (!bytes.empty()) {
    if (filled_ == 0 && bytes.size() >= granule_) {
      checksums_.push_back(kernel_.once(bytes.data(), granule_));
      bytes = bytes.subspan(granule_);
      continue;
    }
    if (filled_ == 0) kernel_.reset(state_);
    const size_t part = std::min<uint64_t>(bytes.size(), granule_ - filled_);
    kernel_.update(state_, bytes.data(), part);
    bytes = bytes.subspan(part);
    filled_ += part;
    if (filled_ < granule_) continue;
    checksums_.push_back(kernel_.digest(state_));
    filled_ = 0;
  }
}

}  // namespace baton
