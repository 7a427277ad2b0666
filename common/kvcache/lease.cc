#include "common/kvcache/lease.h"

#include <algorithm>
#include <utility>

#include "common/kvcache/kv_cache.h"

namespace baton {

Lease::Lease(Lease&& other) noexcept
    : cache_(other.cache_),
      blocks_(std::exchange(other.blocks_, {})),
      first_(std::exchange(other.first_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  cache_ = other.cache_;
  blocks_ = std::exchange(other.blocks_, {});
  first_ = std::exchange(other.first_, 0);
  return *this;
}

bool Lease::Grow(int32_t count) {
  if (count > cache_->available()) return false;
  for (int32_t i = 0; i < count; ++i) blocks_.push_back(*cache_->Take());
  return true;
}

void Lease::Append(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    cache_->pool_.Retain(block);
    blocks_.push_back(block);
  }
}

Lease Lease::Share(int32_t count) const {
  Lease other(*cache_);
  other.first_ = std::min(first_, count);
  other.blocks_.assign(blocks_.begin(), blocks_.begin() + other.first_);
  other.Append(blocks().first(count).subspan(other.first_));
  return other;
}

// The last block first, as in Clear.
void Lease::ReleaseBefore(int32_t index) {
  for (int32_t i = index; i-- > first_;) cache_->pool_.Release(blocks_[i]);
  first_ = std::max(first_, index);
  Put(first_, blocks_[first_]);
}

void Lease::Put(int32_t index, BlockId block) {
  blocks_[index] = block;
  if (index == first_) std::fill_n(blocks_.begin(), first_, block);
}

void Lease::Replace(int32_t index, BlockId block) {
  cache_->pool_.Retain(block);
  cache_->pool_.Release(blocks_[index]);
  Put(index, block);
}

bool Lease::IsExclusive(int32_t index) const {
  return cache_->is_exclusive(blocks_[index]);
}

bool Lease::MakeExclusive(int32_t index, std::optional<BlockCopy>& copy) {
  if (IsExclusive(index)) return true;
  const BlockId old = blocks_[index];
  const auto fresh = cache_->Take();
  if (!fresh) return false;
  copy = BlockCopy{static_cast<int32_t>(old.value()), static_cast<int32_t>(fresh->value())};
  Put(index, *fresh);
  cache_->pool_.Release(old);
  return true;
}

void Lease::Clear() {
  while (size() > first_) {
    cache_->pool_.Release(blocks_.back());
    blocks_.pop_back();
  }
  blocks_.clear();
  first_ = 0;
}

}  // namespace baton
