#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/dtype.h"

namespace baton {

// Files with more tensors are refused, because a FileTensor takes more memory than its description
// in the file.
inline constexpr size_t kMaxTensors = size_t{1} << 18;

// A tensor of a mapped weight file, already checked to be within the file. The size of `bytes` is
// exactly what shape and dtype require; the alignment is arbitrary. Does not own the bytes.
struct FileTensor {
  std::string name;
  DType dtype = DType::kF32;
  // When the type is not a DType: the file's name of the type, for example "I64". Such a tensor may
  // be in the file but cannot be loaded. In a GGUF file its `bytes` are empty, because the size of
  // the type is not known.
  std::string other_type;
  std::vector<int64_t> shape;  // outermost first: a matrix is {rows, cols}
  std::span<const std::byte> bytes;
  std::string file;
};

// The size in bytes of a tensor of this type and shape. InvalidArgument when a dimension is not
// positive, when a row is not a whole number of quantization blocks, or when the tensor has more
// than 2^60 elements. The message begins with `what`.
StatusOr<size_t> TensorBytes(DType dtype, std::span<const int64_t> shape, std::string_view what);

// The name of the tensor's type, for example "f32"; for other types the name in the file.
std::string TypeName(const FileTensor& tensor);

// The file and the name of a tensor, as errors begin.
std::string NameForErrors(const FileTensor& tensor);

// Formats a shape, for example "[512, 64]".
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace baton
