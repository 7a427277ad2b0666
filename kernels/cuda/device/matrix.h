#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/packed/packed_format.h"
#include "kernels/cuda/rows/quantize.h"
#include "kernels/tensor.h"

namespace baton::cuda {

// A weight matrix, row-major [rows][cols] without gaps, in bf16, or in FP8 (E4M3) with one scale
// for each row; or packed (packed_format.h). A matrix from LoadGateUp is [gate rows | up rows].
class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(std::unique_ptr<Buffer> buffer, int64_t rows, int64_t cols, DType dtype = DType::kBF16)
      : buffer_(std::move(buffer)), rows_(rows), cols_(cols), dtype_(dtype) {}
  // Packed: its factors, if it has any, are behind the packed numbers.
  CudaMatrix(std::unique_ptr<Buffer> buffer,
             int64_t rows,
             int64_t cols,
             const PackedFormat& format,
             bool has_factors)
      : CudaMatrix(std::move(buffer), rows, cols, format.number) {
    packed_ = {buffer_->data(), format, rows, cols};
    if (!has_factors) return;
    packed_.factors = reinterpret_cast<const float*>(buffer_->data() + format.Bytes(rows, cols));
  }
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  size_t bytes() const override { return buffer_->size(); }
  DType dtype() const { return dtype_; }  // of the numbers
  bool is_packed() const { return packed_.format.is_packed(); }
  const PackedWeights& packed() const { return packed_; }
  // The data of a bf16 matrix.
  const __nv_bfloat16* data() const {
    return reinterpret_cast<const __nv_bfloat16*>(buffer_->data());
  }
  // The data and the scales of an FP8 matrix.
  Fp8Rows fp8() const { return Fp8Rows::At(buffer_->data(), rows_, cols_); }

 private:
  std::unique_ptr<Buffer> buffer_;
  int64_t rows_;
  int64_t cols_;
  DType dtype_;
  PackedWeights packed_;
};

// A vector, stored in float32 and in bf16. The bf16 copy is for GEMMs that add it as a bias to a
// bf16 result.
class CudaVector final : public Vector {
 public:
  CudaVector(std::unique_ptr<Buffer> buffer, int64_t size)
      : buffer_(std::move(buffer)), size_(size) {}
  int64_t size() const override { return size_; }
  const float* data() const { return reinterpret_cast<const float*>(buffer_->data()); }
  const __nv_bfloat16* bf16() const {
    return reinterpret_cast<const __nv_bfloat16*>(buffer_->data() + Bf16Offset(size_));
  }
  static size_t Bf16Offset(int64_t size) {
    return (static_cast<size_t>(size) * sizeof(float) + 255) / 256 * 256;
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  int64_t size_;
};

// The numbers of a CudaVector on the device; null for null.
inline const float* DataOf(const Vector* vector) {
  return vector == nullptr ? nullptr : static_cast<const CudaVector*>(vector)->data();
}

// Copies matrices and vectors to the device through pinned memory. Matrices of other types than
// bf16 are converted to bf16 on the host, except that matrices with groups that only GEMMs read
// stay packed, where a format has them (packed_parts.h). With `quantize`, matrices that may be
// quantized (HostMatrix::may_quantize) and whose rows and columns are multiples of 16 are then
// converted to FP8. The scale of a row is that of the whole row: for a part of the columns the
// loader reads all columns, and needs device memory for them in bf16 and in FP8 until it returns.
// So an FP8 part has the same numbers and scales as these rows and columns of the whole matrix in
// FP8. Used by one thread.
class WeightLoader final {
 public:
  WeightLoader(CudaDevice& device, bool quantize) : device_(device), quantize_(quantize) {}
  // The contract is that of Ops::LoadMatrix and Ops::LoadVector.
  StatusOr<std::unique_ptr<Matrix>> Load(std::span<const HostMatrix> parts);
  StatusOr<std::unique_ptr<Vector>> Load(std::span<const float> values);

 private:
  // The parts, of `rows` rows in all, in bf16.
  StatusOr<std::unique_ptr<CudaMatrix>> LoadBf16(std::span<const HostMatrix> parts, int64_t rows);
  StatusOr<std::unique_ptr<CudaMatrix>> LoadPacked(std::span<const HostMatrix> parts,
                                                   int64_t rows,
                                                   const PackedFormat& format);
  // A copy of `matrix` in FP8.
  StatusOr<std::unique_ptr<CudaMatrix>> Quantize(const CudaMatrix& matrix);
  // A copy of columns [first, first + count) of an FP8 matrix.
  StatusOr<std::unique_ptr<CudaMatrix>> Columns(const CudaMatrix& quantized,
                                                int64_t first,
                                                int64_t count);

  CudaDevice& device_;
  const bool quantize_;
};

}  // namespace baton::cuda
