#include "kernels/cuda/device/matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/random_weights.h"
#include "kernels/cuda/packed/pack_weights.h"
#include "kernels/cuda/packed/packed_parts.h"
#include "kernels/dequantize.h"

namespace baton::cuda {
namespace {

// The tensor cores need FP8 matrices whose rows and columns are multiples of this.
constexpr int64_t kWholeQuantized = 16;

// Writes the rows of `part` from `first_row` on as bf16 to `out`, which holds whole rows.
void Convert(const HostMatrix& part, int64_t first_row, std::span<std::byte> out) {
  const auto cols = static_cast<size_t>(part.cols);
  const size_t row_bytes = RowBytes(part.dtype, cols);
  if (part.dtype == DType::kBF16 && part.row_stride() == part.cols) {
    std::memcpy(out.data(), part.Row(first_row), out.size());
    return;
  }
  std::vector<float> values(cols);
  int64_t row = first_row;
  for (size_t at = 0; at < out.size(); at += cols * 2, ++row) {
    if (part.dtype == DType::kBF16) {
      std::memcpy(out.data() + at, part.Row(row), row_bytes);
      continue;
    }
    DequantizeRow(part, row, values);
    for (size_t i = 0; i < cols; ++i) {
      const uint16_t bf16 = FloatToBrain(values[i]);
      std::memcpy(out.data() + at + 2 * i, &bf16, 2);
    }
  }
}

// The kernels of experts take gate and up from the same places of two tiles.
bool FitsTiles(std::span<const HostMatrix> parts) {
  return parts[0].use != WeightUse::kExperts || parts.size() == 1 ||
         parts[0].rows % kTileOutputs == 0;
}

}  // namespace

StatusOr<std::unique_ptr<Matrix>> WeightLoader::Load(std::span<const HostMatrix> parts) {
  if (parts.empty()) return InvalidArgument("a matrix needs at least one part; there is none");
  int64_t rows = 0;
  const HostMatrix& first = parts[0];
  for (const HostMatrix& part : parts) {
    const auto block = static_cast<int64_t>(ShapeOf(part.dtype).elements);
    if (!part.SameColumns(first) || part.rows < 1 || part.cols < 1 || part.cols % block != 0) {
      return InvalidArgument(
          "a part has shape {}×{} and type {}, and is columns [{}, {}) of {}; the parts of this "
          "matrix "
          "must be columns [{}, {}) of {}",
          part.rows,
          part.cols,
          Name(part.dtype),
          part.first_col,
          part.first_col + part.cols,
          part.row_stride(),
          first.first_col,
          first.first_col + first.cols,
          first.row_stride());
    }
    rows += part.rows;
  }
  const bool may_quantize = std::ranges::all_of(parts, &HostMatrix::may_quantize);
  if (!quantize_ && first.use != WeightUse::kAny && first.has_groups()) {
    const PackedFormat format = FormatOf(parts);
    if (format.is_packed() && FitsTiles(parts)) return LoadPacked(parts, rows, format);
  }
  if (!quantize_ || !may_quantize || rows % kWholeQuantized != 0 ||
      first.cols % kWholeQuantized != 0) {
    return LoadBf16(parts, rows);
  }
  std::vector<HostMatrix> wide;
  for (const HostMatrix& part : parts) wide.push_back(part.WithAllColumns());
  BATON_ASSIGN_OR_RETURN(auto bf16, LoadBf16(wide, rows));
  BATON_ASSIGN_OR_RETURN(auto quantized, Quantize(*bf16));
  if (first.cols == first.row_stride()) return quantized;
  bf16.reset();
  return Columns(*quantized, first.first_col, first.cols);
}

StatusOr<std::unique_ptr<CudaMatrix>> WeightLoader::LoadBf16(std::span<const HostMatrix> parts,
                                                             int64_t rows) {
  const int64_t cols = parts[0].cols;
  const auto row_bytes = static_cast<size_t>(cols) * 2;
  BATON_ASSIGN_OR_RETURN(
      auto buffer, device_.Allocate(static_cast<size_t>(rows) * row_bytes, Sharing::kPrivate));
  size_t at = 0;
  for (const HostMatrix& part : parts) {
    const size_t bytes = static_cast<size_t>(part.rows) * row_bytes;
    if (part.data == nullptr) {
      auto* to = reinterpret_cast<__nv_bfloat16*>(buffer->data() + at);
      BATON_CUDA_RETURN_IF_ERROR(LaunchRandomWeights(part, to, cudaStreamLegacy));
      at += bytes;
      continue;
    }
    BATON_RETURN_IF_ERROR(
        device_.Stream(*buffer, at, bytes, row_bytes, [&](size_t start, std::span<std::byte> out) {
          Convert(part, static_cast<int64_t>(start / row_bytes), out);
        }));
    at += bytes;
  }
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cudaStreamLegacy));
  return std::make_unique<CudaMatrix>(std::move(buffer), rows, cols);
}

StatusOr<std::unique_ptr<CudaMatrix>> WeightLoader::LoadPacked(std::span<const HostMatrix> parts,
                                                               int64_t rows,
                                                               const PackedFormat& format) {
  const int64_t cols = parts[0].cols;
  const PackedScales scales = ScalesOf(parts, format);
  const auto packed_bytes = static_cast<size_t>(format.Bytes(rows, cols));
  const auto factors = std::as_bytes(std::span(scales.factors));
  BATON_ASSIGN_OR_RETURN(auto buffer,
                         device_.Allocate(packed_bytes + factors.size(), Sharing::kPrivate));
  // Of the numbers, the scales and the zero points as they are in the file.
  const size_t row_bytes = RowBytes(format.number, static_cast<size_t>(cols));
  const size_t scales_at = (static_cast<size_t>(rows) * row_bytes + 255) / 256 * 256;
  const size_t zeros_at = scales_at + (scales.scales.size() + 255) / 256 * 256;
  BATON_ASSIGN_OR_RETURN(auto raw,
                         device_.Allocate(zeros_at + scales.zeros.size() + 1, Sharing::kPrivate));
  size_t at = 0;
  for (const HostMatrix& part : parts) {
    const size_t bytes = static_cast<size_t>(part.rows) * row_bytes;
    const auto copy = [&](size_t start, std::span<std::byte> out) {
      auto row = static_cast<int64_t>(start / row_bytes);
      for (size_t to = 0; to < out.size(); to += row_bytes, ++row) {
        std::memcpy(out.data() + to, part.Row(row), row_bytes);
      }
    };
    BATON_RETURN_IF_ERROR(device_.Stream(*raw, at, bytes, row_bytes, copy));
    at += bytes;
  }
  BATON_RETURN_IF_ERROR(device_.CopyIn(*raw, scales_at, scales.scales));
  if (format.zeros) {
    BATON_RETURN_IF_ERROR(device_.CopyIn(*raw, zeros_at, std::as_bytes(std::span(scales.zeros))));
  }
  if (!factors.empty()) BATON_RETURN_IF_ERROR(device_.CopyIn(*buffer, packed_bytes, factors));
  const RawWeights weights = {raw->data(),
                              raw->data() + scales_at,
                              reinterpret_cast<const uint8_t*>(raw->data() + zeros_at),
                              rows,
                              cols,
                              scales.groups};
  BATON_CUDA_RETURN_IF_ERROR(LaunchPack(weights, format, buffer->data(), cudaStreamLegacy));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cudaStreamLegacy));
  return std::make_unique<CudaMatrix>(
      std::move(buffer), rows, cols, format, !scales.factors.empty());
}

StatusOr<std::unique_ptr<CudaMatrix>> WeightLoader::Quantize(const CudaMatrix& matrix) {
  const int64_t rows = matrix.rows();
  const int64_t cols = matrix.cols();
  BATON_ASSIGN_OR_RETURN(auto buffer,
                         device_.Allocate(Fp8Rows::Bytes(rows, cols), Sharing::kPrivate));
  auto quantized = std::make_unique<CudaMatrix>(std::move(buffer), rows, cols, DType::kFp8);
  Tensor from;
  from.data = reinterpret_cast<std::byte*>(const_cast<__nv_bfloat16*>(matrix.data()));
  from.dtype = DType::kBF16;
  from.rows = rows;
  from.cols = from.stride = cols;
  BATON_CUDA_RETURN_IF_ERROR(LaunchQuantize(from, quantized->fp8(), cudaStreamLegacy));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cudaStreamLegacy));
  return quantized;
}

StatusOr<std::unique_ptr<CudaMatrix>> WeightLoader::Columns(const CudaMatrix& quantized,
                                                            int64_t first,
                                                            int64_t count) {
  const int64_t rows = quantized.rows();
  BATON_ASSIGN_OR_RETURN(auto buffer,
                         device_.Allocate(Fp8Rows::Bytes(rows, count), Sharing::kPrivate));
  auto part = std::make_unique<CudaMatrix>(std::move(buffer), rows, count, DType::kFp8);
  const Fp8Rows from = quantized.fp8();
  const Fp8Rows to = part->fp8();
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpy2DAsync(to.data,
                                               static_cast<size_t>(count),
                                               from.data + first,
                                               static_cast<size_t>(from.cols),
                                               static_cast<size_t>(count),
                                               static_cast<size_t>(rows),
                                               cudaMemcpyDeviceToDevice,
                                               cudaStreamLegacy));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to.scales,
                                             from.scales,
                                             static_cast<size_t>(rows) * sizeof(float),
                                             cudaMemcpyDeviceToDevice,
                                             cudaStreamLegacy));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cudaStreamLegacy));
  return part;
}

StatusOr<std::unique_ptr<Vector>> WeightLoader::Load(std::span<const float> values) {
  const auto size = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(CudaVector::Bf16Offset(size) + values.size() * 2);
  std::memcpy(bytes.data(), values.data(), values.size_bytes());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bf16 = FloatToBrain(values[i]);
    std::memcpy(bytes.data() + CudaVector::Bf16Offset(size) + 2 * i, &bf16, 2);
  }
  BATON_ASSIGN_OR_RETURN(auto buffer, device_.Allocate(bytes.size(), Sharing::kPrivate));
  BATON_RETURN_IF_ERROR(device_.CopyIn(*buffer, 0, bytes));
  return std::make_unique<CudaVector>(std::move(buffer), size);
}

}  // namespace baton::cuda
