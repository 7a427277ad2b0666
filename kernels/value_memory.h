#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/device.h"
#include "kernels/memory_plan.h"
#include "kernels/tensor.h"

namespace baton {

// Who may read a value.
enum class ValueReach : uint8_t {
  kStep,    // the ops of its step
  kResult,  // also the caller, until the next step begins
  kAlways,  // also the caller, while other steps run: nothing else is ever in its memory
};

// A value of steps, for which Ops::PlaceValues finds memory.
struct ValueUse {
  DType dtype = DType::kF32;
  ValueReach reach = ValueReach::kStep;
  int64_t rows = 0;  // at most
  int64_t cols = 0;
  // The ops that write it first and use it last, by their position among the ops of all kinds of
  // step; a result is used until its step has ended. Values that are needed at the same time are
  // apart.
  size_t first = 0;
  size_t last = 0;
};

// The memory of values; freed on destruction.
struct PlacedValues {
  std::vector<Tensor> tensors;     // by the index of the ValueUse, with all of its rows
  std::unique_ptr<Buffer> memory;  // null where the backend has it
};

// A tensor for a value, without data. The stride of its rows is a multiple of 16 elements, so that
// vector loads stay within cache lines.
Tensor ShapeFor(const ValueUse& value);
// The bytes of the rows of a tensor, with the gaps between them.
size_t StridedBytes(const Tensor& tensor);
// When the memory of each value is in use.
std::vector<Lifetime> LifetimesOf(std::span<const ValueUse> values);

// Places values in one allocation of `device`. Errors: ResourceExhausted when it does not fit into
// the free memory.
StatusOr<PlacedValues> PlaceInBuffer(std::span<const ValueUse> values, Device& device);
// Checks whether `bytes` bytes of values fit into the free memory. Host memory is committed only
// when it is first touched, so an allocation that is too large may succeed.
Status CheckRoomForValues(size_t bytes, Device& device);

}  // namespace baton
