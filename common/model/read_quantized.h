#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model/quantization_config.h"
#include "common/model/quantized_tensors.h"
#include "kernels/tensor.h"

namespace baton {

// A matrix, and where it is in tensors of several ones, such as those of all experts.
struct QuantizedPlace {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t slice = 0;
  int64_t slices = 1;  // more than 1: the outermost dimension
};

// Memory of what the files have in another layout than WeightGroups and rows of numbers.
struct QuantizedMemory {
  std::vector<std::byte> numbers;
  std::vector<float> scales;
  std::vector<int8_t> zeros;
  std::vector<int32_t> group_indices;
};

// The matrix of these tensors, a view of them and of `memory`. Without memory: only checked, and
// without data and scales. Errors: InvalidArgument naming the tensor, its type or shape and those
// that are expected, or a scale or a group index that is not valid.
StatusOr<HostMatrix> ReadQuantized(const QuantizedTensors& tensors,
                                   const QuantizationConfig& quantization,
                                   const QuantizedPlace& place,
                                   QuantizedMemory* memory);

// Copies rows `rows` of `matrix` into `memory`, which must not be that of the matrix. Returns the
// copy.
HostMatrix TakeQuantizedRows(const HostMatrix& matrix,
                             const std::vector<int64_t>& rows,
                             QuantizedMemory& memory);

}  // namespace baton
