#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/dtype.h"

namespace baton {

// A view of a row-major matrix of activations [rows][cols] in device memory; `stride` elements lie
// between the starts of two rows. Does not own.
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

// A weight as it lies in a file: row-major [rows = outputs][cols = inputs], y = W x. Without data
// it is to be drawn at random, where it is needed: number i is bf16(scale · UniformWeight(stream,
// i)).
struct HostMatrix {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  uint64_t stream = 0;
  float scale = 0;
  // A backend that was told to may hold it in fewer bits (BackendOptions::fp8_weights).
  bool may_quantize = false;
};

// A weight matrix in its backend's own form (packed, maybe still quantised). Made by
// Ops::LoadMatrix, used only with the Ops that made it. Immutable.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual int64_t rows() const = 0;  // outputs
  virtual int64_t cols() const = 0;  // inputs
  virtual size_t bytes() const = 0;  // memory it takes on the device
};

// A weight vector (norm weights, biases), float32 on the host side. Immutable.
class Vector {
 public:
  virtual ~Vector() = default;
  virtual int64_t size() const = 0;
};

}  // namespace baton
