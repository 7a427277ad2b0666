#include "kvtransfer/wire/granule_hasher.h"

#include <xxhash.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/hash.h"

namespace baton {

GranuleHasher::GranuleHasher() : state_(XXH3_createState()) {
  BATON_CHECK(state_ != nullptr, "out of memory for a hash state");
}

GranuleHasher::~GranuleHasher() = default;

void GranuleHasher::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
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
      checksums_.push_back(Xxh3(bytes.first(granule_)));
      bytes = bytes.subspan(granule_);
      continue;
    }
    if (filled_ == 0) XXH3_64bits_reset(state_.get());
    const size_t part = std::min<uint64_t>(bytes.size(), granule_ - filled_);
    XXH3_64bits_update(state_.get(), bytes.data(), part);
    bytes = bytes.subspan(part);
    filled_ += part;
    if (filled_ < granule_) continue;
    checksums_.push_back(XXH3_64bits_digest(state_.get()));
    filled_ = 0;
  }
}

}  // namespace baton
