#include "common/kvcache/lease.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/kvcache/kv_cache.h"

namespace baton {
namespace {

// Sets `count` entries from `to` on to `block`, by vectors: with a long context, this is most of
// the time that a window takes to slide.
void Fill(BlockId* to, int32_t count, BlockId block) {
  std::array<BlockId, 16> run;
  run.fill(block);
  const auto step = static_cast<int32_t>(run.size());
  for (; count >= step; count -= step, to += step) std::memcpy(to, run.data(), sizeof(run));
  std::fill_n(to, count, block);
}

}  // namespace

Lease::Lease(KvCache& cache) : cache_(&cache), tables_(cache.groups()) {}

Lease::Lease(Lease&& other) noexcept
    : cache_(other.cache_),
      tables_(std::exchange(other.tables_, {})),
      state_(std::exchange(other.state_, {})) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  cache_ = other.cache_;
  tables_ = std::exchange(other.tables_, {});
  state_ = std::exchange(other.state_, {});
  return *this;
}

int32_t Lease::size() const {
  int32_t shortest = tables_.empty() ? 0 : size(0);
  for (int32_t group = 1; group < groups(); ++group) shortest = std::min(shortest, size(group));
  return shortest;
}

int64_t Lease::held() const {
  int64_t count = std::ssize(state_);
  for (const Table& table : tables_) count += std::ssize(table.blocks) - table.first;
  return count;
}

std::vector<BlockId> Lease::Entries(int32_t begin, int32_t end) const {
  std::vector<BlockId> entries;
  entries.reserve(static_cast<size_t>(end - begin) * tables_.size());
  for (int32_t index = begin; index < end; ++index) {
    for (const Table& table : tables_) entries.push_back(table.blocks[index]);
  }
  return entries;
}

// `size_of(group)` is the size that the table of a group has at least.
template <class SizeOf>
bool Lease::Grow(const SizeOf& size_of) {
  int64_t count = 0;
  for (int32_t group = 0; group < groups(); ++group) {
    count += std::max(0, size_of(group) - size(group));
  }
  if (count > cache_->available()) return false;
  for (int32_t group = 0; group < groups(); ++group) {
    while (size(group) < size_of(group)) tables_[group].Add(*cache_->Take(group));
  }
  return true;
}

bool Lease::GrowTo(std::span<const int32_t> sizes) {
  return Grow([sizes](int32_t group) { return sizes[group]; });
}

bool Lease::GrowTo(int32_t size) {
  return Grow([size](int32_t) { return size; });
}

void Lease::Take(const PrefixHit& prefix) {
  for (int32_t group = 0; group < groups(); ++group) {
    const PrefixHit::Part& part = prefix.parts[group];
    BATON_CHECK(size(group) == 0, "a lease takes a prefix behind {} blocks", size(group));
    Skip(group, part.first);
    Append(group, part.blocks);
  }
}

void Lease::Skip(int32_t group, int32_t index) {
  Table& table = tables_[group];
  if (size(group) >= index) return;
  BATON_CHECK(held(group).empty(), "a lease skips blocks behind {} that it holds", size(group));
  table.blocks.resize(index);
  table.first = index;
}

void Lease::Append(int32_t group, std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    cache_->pool_.Retain(block);
    tables_[group].Add(block);
  }
}

void Lease::Append(const Lease& other, int32_t end) {
  for (int32_t group = 0; group < groups(); ++group) {
    const int32_t begin = size(group);
    if (begin >= end) continue;
    BATON_CHECK(other.first(group) <= begin, "a lease takes blocks that the other does not hold");
    Append(group, other.blocks(group).subspan(begin, end - begin));
  }
}

Lease Lease::Share(int32_t count) const {
  Lease other(*cache_);
  for (int32_t group = 0; group < groups(); ++group) {
    Table& table = other.tables_[group];
    const int32_t end = std::min(count, size(group));
    table.first = std::min(first(group), end);
    table.blocks.assign(blocks(group).begin(), blocks(group).begin() + table.first);
    other.Append(group, blocks(group).first(end).subspan(table.first));
  }
  return other;
}

bool Lease::HasOwnState() const {
  return !state_.empty() && cache_->is_exclusive(state_.front());
}

void Lease::TakeState(std::span<const BlockId> blocks) {
  BATON_CHECK(state_.empty(), "a lease takes a second state");
  for (const BlockId block : blocks) cache_->pool_.Retain(block);
  state_.assign(blocks.begin(), blocks.end());
}

bool Lease::TakeNewState() {
  BATON_CHECK(state_.empty(), "a lease takes a second state");
  if (cache_->state_blocks() > cache_->available()) return false;
  for (int32_t i = 0; i < cache_->state_blocks(); ++i) {
    state_.push_back(*cache_->Take(cache_->groups()));
  }
  return true;
}

Lease Lease::SplitState() {
  Lease state(*cache_);
  state.state_ = std::exchange(state_, {});
  return state;
}

// The last block first, as in Clear.
void Lease::ReleaseBefore(int32_t group, int32_t index) {
  Table& table = tables_[group];
  for (int32_t i = index; i-- > table.first;) cache_->pool_.Release(table.blocks[i]);
  table.first = std::max(table.first, index);
  table.Put(table.first, table.blocks[table.first]);
}

void Lease::Truncate(int32_t size) {
  for (Table& table : tables_) {
    while (std::cmp_greater(table.blocks.size(), size)) {
      BATON_CHECK(std::cmp_greater(table.blocks.size(), table.first), "no block is held");
      cache_->pool_.Release(table.blocks.back());
      table.blocks.pop_back();
    }
  }
}

void Lease::Table::Add(BlockId block) {
  blocks.push_back(block);
  if (std::cmp_equal(blocks.size(), first + 1)) Put(first, block);
}

void Lease::Table::Put(int32_t index, BlockId block) {
  blocks[index] = block;
  if (index == first) Fill(blocks.data(), first, block);
}

void Lease::Replace(int32_t group, int32_t index, BlockId block) {
  cache_->pool_.Retain(block);
  cache_->pool_.Release(tables_[group].blocks[index]);
  tables_[group].Put(index, block);
}

bool Lease::HasRoom(int32_t size, int32_t index) const {
  for (const Table& table : tables_) {
    if (std::cmp_less(table.blocks.size(), size)) return false;
    if (!cache_->is_exclusive(table.blocks[index])) return false;
  }
  return true;
}

bool Lease::MakeExclusive(int32_t index, std::vector<BlockCopy>& copies) {
  const auto shared = [&](const Table& table) {
    return !cache_->is_exclusive(table.blocks[index]);
  };
  if (std::ranges::count_if(tables_, shared) > cache_->available()) return false;
  for (int32_t group = 0; group < groups(); ++group) {
    Table& table = tables_[group];
    if (!shared(table)) continue;
    const BlockId old = table.blocks[index];
    const BlockId fresh = *cache_->Take(group);
    copies.push_back(
        {static_cast<int32_t>(old.arena_index()), static_cast<int32_t>(fresh.arena_index())});
    table.Put(index, fresh);
    cache_->pool_.Release(old);
  }
  return true;
}

void Lease::Clear() {
  for (const BlockId block : std::exchange(state_, {})) cache_->pool_.Release(block);
  size_t longest = 0;
  for (const Table& table : tables_) longest = std::max(longest, table.blocks.size());
  for (size_t i = longest; i-- > 0;) {
    for (Table& table : tables_) {
      if (i < table.blocks.size() && std::cmp_greater_equal(i, table.first)) {
        cache_->pool_.Release(table.blocks[i]);
      }
    }
  }
  for (Table& table : tables_) table = {};
}

}  // namespace baton
