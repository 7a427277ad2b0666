#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/dtype.h"

namespace baton {

// No file has more tensors: what is kept of each takes more memory than its description in the
// file.
inline constexpr size_t kMaxTensors = size_t{1} << 18;

// A tensor inside a mapped weight file, already checked to lie in it: `bytes` has exactly the size
// that shape and dtype give, and no alignment. Does not own the bytes.
struct FileTensor {
  std::string name;
  DType dtype = DType::kF32;
  // The file's name of a type that is no DType, "I64": such a tensor may be there, but not be read.
  // Of a GGUF file it has no bytes then, since their number is not known.
  std::string other_type;
  std::vector<int64_t> shape;  // outermost first: a matrix is {rows, cols}
  std::span<const std::byte> bytes;
  std::string file;
};

// Bytes of a tensor of that shape. InvalidArgument when a dimension is not positive, when rows are
// no whole number of blocks, or when the product does not fit 62 bits. `what` begins the message.
StatusOr<size_t> TensorBytes(DType dtype, std::span<const int64_t> shape, std::string_view what);

// "f32", or what the file calls the type.
std::string TypeName(const FileTensor& tensor);

// "[512, 64]".
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace baton
