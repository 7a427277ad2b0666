#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/dtype.h"

namespace baton {

// A view of a row-major matrix of activations [rows][cols] in device memory. `stride` is the
// distance of the starts of two rows in elements. Does not own the memory.
struct Tensor {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  // Rows [first, first + count) of this view.
  Tensor Rows(int64_t first, int64_t count) const {
    Tensor part = *this;
    part.data += first * stride * static_cast<int64_t>(ShapeOf(dtype).bytes);
    part.rows = count;
    return part;
  }
  // Columns [first, first + count) of this view.
  Tensor Columns(int64_t first, int64_t count) const {
    Tensor part = *this;
    part.data += first * static_cast<int64_t>(ShapeOf(dtype).bytes);
    part.cols = count;
    return part;
  }

  bool operator==(const Tensor&) const = default;
};

// Types in which files have scales. kE8m0 are powers of two (bits of an exponent over 127).
enum class ScaleType : uint8_t { kF32, kF16, kBF16, kFp8, kE8m0 };

// The scales and zero points of a matrix of quantised weights. Weight (o, i) of output o and input
// i is scale · (number (o, i) − zero), with the scale and the zero of its group. Groups divide the
// rows and the columns of the whole matrix from (0, 0) on; those at its end may be smaller. Does
// not own the memory.
struct WeightGroups {
  // Ranks cut columns at multiples of this, also within groups.
  static constexpr int64_t kCutColumns = 32;

  const float* scales = nullptr;  // [⌈outputs / rows⌉][in_row]; null: the weights are the numbers
  const int8_t* zeros = nullptr;  // the same shape; null: `zero` for all
  int32_t zero = 0;
  int64_t rows = 1;    // outputs of a group
  int64_t cols = 0;    // inputs of a group
  int64_t in_row = 1;  // groups of an output
  // The group of each input of the whole matrix, where they are not in order (the act-order of
  // GPTQ). Null: input i is in group i / cols.
  const int32_t* of_input = nullptr;
  // A type that has all scales exactly. Those of kFp8 were divided by `divisor` (the global scale
  // of NVFP4).
  ScaleType scale_type = ScaleType::kF32;
  float divisor = 1;
  // The position of the matrix in the groups.
  int64_t first_row = 0;
  int64_t first_col = 0;

  // The index in `scales` of the group of weight (row, col) of the matrix.
  size_t IndexOf(int64_t row, int64_t col) const {
    const int64_t input = first_col + col;
    const int64_t group = of_input != nullptr ? of_input[input] : input / cols;
    return static_cast<size_t>((first_row + row) / rows * in_row + group);
  }
  float ZeroOf(size_t index) const {
    return static_cast<float>(zeros != nullptr ? zeros[index] : zero);
  }
};

// Which ops read a matrix: any, MatMul and MatMulSiluMul alone, or Experts alone.
enum class WeightUse : uint8_t { kAny, kMatMul, kExperts };

// A weight as it is stored in a file: row-major [rows = outputs][cols = inputs], y = W x. It may be
// a part of a larger matrix, the whole matrix. Without data, the backend draws it at random: number
// (i, j) of the whole matrix is bf16(scale · UniformWeight(stream, i · columns + j)). Does not own
// the data.
struct HostMatrix {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // begins with number (0, 0) of this part
  uint64_t stream = 0;
  float scale = 0;
  // Whether a backend may store it in fewer bits, if it is configured to (fp8_weights).
  bool may_quantize = false;
  WeightUse use = WeightUse::kAny;
  // The position of this part in the whole matrix.
  int64_t first_row = 0;
  int64_t first_col = 0;   // whole blocks of the dtype
  int64_t whole_cols = 0;  // columns of the whole matrix; 0 when this part has all of them
  // Of quantised weights whose type is not a block format.
  WeightGroups groups = {};

  // The distance of the starts of two rows, in numbers.
  int64_t row_stride() const { return whole_cols == 0 ? cols : whole_cols; }
  // The bytes from number (row, 0) of this part on.
  const std::byte* Row(int64_t row) const {
    return data + static_cast<size_t>(row) * RowBytes(dtype, static_cast<size_t>(row_stride()));
  }
  // The index in the random stream of number (row, 0) of this part.
  uint64_t StreamIndex(int64_t row) const {
    return static_cast<uint64_t>((first_row + row) * row_stride() + first_col);
  }
  // Whether the weights are products of the stored numbers and scales beside them.
  bool has_groups() const { return groups.scales != nullptr; }
  // Whether both are cut from the same columns of equally wide matrices.
  bool SameColumns(const HostMatrix& other) const {
    return cols == other.cols && first_col == other.first_col && row_stride() == other.row_stride();
  }
  // The rows of this part with all columns of the whole matrix.
  HostMatrix WithAllColumns() const {
    HostMatrix wide = *this;
    if (data != nullptr) wide.data -= RowBytes(dtype, static_cast<size_t>(first_col));
    wide.cols = row_stride();
    wide.groups.first_col -= first_col;
    wide.first_col = wide.whole_cols = 0;
    return wide;
  }
};

// A weight matrix in its backend's own layout (packed, perhaps still quantised). Created by
// Ops::LoadMatrix, and used only with the Ops that created it. Immutable.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;  // outputs
  virtual int64_t cols() const = 0;  // inputs
  virtual size_t bytes() const = 0;  // its memory on the device
};

// A weight vector (norm weights, biases), float32 on the host side. Immutable.
class Vector {
 public:
  virtual ~Vector() = default;
  virtual int64_t size() const = 0;
};

}  // namespace baton
