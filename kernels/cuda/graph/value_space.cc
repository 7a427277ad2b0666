#include "kernels/cuda/graph/value_space.h"

#include <algorithm>
#include <cstdint>

namespace baton::cuda {
namespace {

// No address of a host or a device has these bits.
constexpr uintptr_t kValues = uintptr_t{1} << 60;
constexpr uintptr_t kScratch = uintptr_t{1} << 61;
constexpr size_t kBlockMultiple = 4096;

std::byte* AddressAt(uintptr_t value) {
  return reinterpret_cast<std::byte*>(value);  // NOLINT(performance-no-int-to-ptr): it is none
}

// Appends a block behind the last one.
std::byte* Append(std::vector<ValueSpace::Block>& blocks, uintptr_t first, size_t bytes) {
  std::byte* const begin =
      blocks.empty()
          ? AddressAt(first)
          : blocks.back().begin + (blocks.back().bytes / kBlockMultiple + 1) * kBlockMultiple;
  blocks.push_back({begin, bytes});
  return begin;
}

const ValueSpace::Block* FindIn(std::span<const ValueSpace::Block> blocks, const std::byte* at) {
  const auto after = std::ranges::upper_bound(blocks, at, {}, &ValueSpace::Block::begin);
  if (after == blocks.begin()) return nullptr;
  const ValueSpace::Block& block = *std::prev(after);
  return at < block.begin + std::max<size_t>(block.bytes, 1) ? &block : nullptr;
}

}  // namespace

std::vector<Tensor> ValueSpace::Place(std::span<const ValueUse> values) {
  const std::vector<Lifetime> lifetimes = LifetimesOf(values);
  std::vector<Tensor> tensors;
  std::vector<Lifetime> kept;
  std::vector<size_t> kept_values;
  for (const ValueUse& value : values) {
    Tensor& tensor = tensors.emplace_back(ShapeFor(value));
    const Lifetime& lifetime = lifetimes[tensors.size() - 1];
    if (value.reach == ValueReach::kStep) {
      tensor.data = Append(values_, kValues, lifetime.bytes);
      continue;
    }
    kept.push_back(lifetime);
    kept_values.push_back(tensors.size() - 1);
    keeps_results_ = keeps_results_ || value.reach == ValueReach::kAlways;
  }
  const MemoryPlan plan = PlanMemory(kept);
  for (size_t i = 0; i < kept.size(); ++i) {
    tensors[kept_values[i]].data = results_.begin + plan.offsets[i];
  }
  results_.bytes = std::max(results_.bytes, plan.bytes);
  return tensors;
}

std::byte* ValueSpace::Scratch(size_t bytes) {
  return Append(scratch_, kScratch, bytes);
}

const ValueSpace::Block* ValueSpace::Find(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  if (at >= results_.begin && at < results_.begin + results_.bytes) return &results_;
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number >= kScratch) return FindIn(scratch_, at);
  return number >= kValues ? FindIn(values_, at) : nullptr;
}

bool ValueSpace::IsScratch(const Block& block) const {
  return reinterpret_cast<uintptr_t>(block.begin) >= kScratch;
}

}  // namespace baton::cuda
