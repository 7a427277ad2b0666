#include "common/model/file_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton {

StatusOr<size_t> TensorBytes(DType dtype, std::span<const int64_t> shape, std::string_view what) {
  constexpr int64_t kMaxElements = int64_t{1} << 60;
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1 || size > kMaxElements / elements) {
      return InvalidArgument(
          "{}: shape {} has a size that is zero, negative or too large", what, ShapeText(shape));
    }
    elements *= size;
  }
  const BlockShape block = ShapeOf(dtype);
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % static_cast<int64_t>(block.elements) != 0) {
    return InvalidArgument("{}: rows of {} numbers are not whole {} blocks of {}",
                           what,
                           row,
                           Name(dtype),
                           block.elements);
  }
  return static_cast<size_t>(elements) / block.elements * block.bytes;
}

std::string TypeName(const FileTensor& tensor) {
  return tensor.other_type.empty() ? std::string(Name(tensor.dtype)) : tensor.other_type;
}

std::string NameForErrors(const FileTensor& tensor) {
  return fmt::format("{}: tensor {}", tensor.file, tensor.name);
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace baton
