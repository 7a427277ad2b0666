#include "kernels/value_memory.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr int64_t kRowMultiple = 16;

}  // namespace

Tensor ShapeFor(const ValueUse& value) {
  return {.dtype = value.dtype,
          .rows = value.rows,
          .cols = value.cols,
          .stride = (value.cols + kRowMultiple - 1) / kRowMultiple * kRowMultiple};
}

size_t StridedBytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.rows * tensor.stride) * ShapeOf(tensor.dtype).bytes;
}

std::vector<Lifetime> LifetimesOf(std::span<const ValueUse> values) {
  size_t ops = 0;
  for (const ValueUse& value : values) ops = std::max(ops, value.last + 1);
  std::vector<Lifetime> lifetimes;
  for (const ValueUse& value : values) {
    Lifetime lifetime = {
        .bytes = StridedBytes(ShapeFor(value)), .first = value.first, .last = value.last};
    if (value.reach == ValueReach::kAlways) lifetime = {lifetime.bytes, 0, ops};
    lifetimes.push_back(lifetime);
  }
  return lifetimes;
}

Status CheckRoomForValues(size_t bytes, Device& device) {
  const size_t free_bytes = device.free_bytes();
  if (bytes <= free_bytes) return OkStatus();
  return MakeStatus(StatusCode::kResourceExhausted,
                    "take {} bytes on {}; {} bytes are free beside the weights",
                    bytes,
                    device.name(),
                    free_bytes);
}

StatusOr<PlacedValues> PlaceInBuffer(std::span<const ValueUse> values, Device& device) {
  const MemoryPlan plan = PlanMemory(LifetimesOf(values));
  BATON_RETURN_IF_ERROR(CheckRoomForValues(plan.bytes, device));
  PlacedValues placed;
  if (plan.bytes == 0) return placed;
  BATON_ASSIGN_OR_RETURN(placed.memory, device.Allocate(plan.bytes, Sharing::kPrivate));
  for (size_t i = 0; i < values.size(); ++i) {
    Tensor& tensor = placed.tensors.emplace_back(ShapeFor(values[i]));
    tensor.data = placed.memory->data() + plan.offsets[i];
  }
  return placed;
}

}  // namespace baton
