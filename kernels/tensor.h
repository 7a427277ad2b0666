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

  bool operator==(const Tensor&) const = default;
};

// A weight as it is stored in a file: row-major [rows = outputs][cols = inputs], y = W x. Without
// data, the backend draws it at random: number i is bf16(scale · UniformWeight(stream, i)).
struct HostMatrix {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  uint64_t stream = 0;
  float scale = 0;
  // Whether a backend may store it in fewer bits, if it is configured to (fp8_weights).
  bool may_quantize = false;
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
