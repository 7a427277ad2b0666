#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/dtype.h"

// Keeps the GEMM algorithms that were chosen by timing in a file, so that the next start of a
// process on the same kind of machine need not time them again. cuBLASLt allows to store an
// algorithm and to use it with the same version of the library (cublasLtMatmulAlgo_t).
//
// The file: an AlgorithmFileHeader, the identity, and the records (AlgorithmRecord), all in the
// machine's own byte order.
namespace baton::cuda {

// The largest power of two, up to 256, that divides the address.
inline uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & -address);
}

// The properties of a GEMM that determine its algorithm.
struct GemmKey {
  int32_t rows = 0;  // the largest number of rows of the row class
  int32_t n = 0;
  int32_t k = 0;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  DType dtype = DType::kBF16;  // of the operands
  DType out_dtype = DType::kBF16;
  bool bias = false;
  bool accumulate = false;
  bool scaled = false;                     // FP8: cuBLASLt applies the scales
  std::array<uint32_t, 3> alignment = {};  // AlignmentOf weight, x and out

  bool operator==(const GemmKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const GemmKey& key) {
    return H::combine(std::move(h),
                      key.rows,
                      key.n,
                      key.k,
                      key.x_stride,
                      key.out_stride,
                      key.dtype,
                      key.out_dtype,
                      key.bias,
                      key.accumulate,
                      key.scaled,
                      key.alignment);
  }
};

struct ChosenAlgorithm {
  GemmKey key;
  cublasLtMatmulAlgo_t algorithm;
};

// The path of the file for `identity` in `folder`. The identity names everything that the choice
// depends on beside the GEMM: the card, the driver, the version of cuBLASLt.
std::string AlgorithmPath(const std::string& folder, std::string_view identity);

// Errors: NotFound when there is no file; InvalidArgument when the file is damaged, or was written
// for another identity or by another version of Baton.
StatusOr<std::vector<ChosenAlgorithm>> ReadAlgorithms(const std::string& path,
                                                      std::string_view identity);

// Replaces the file as a whole, so that a process that reads it meanwhile gets the old or the new
// one. Creates the folder. Errors: Unavailable, with the system's reason.
Status WriteAlgorithms(const std::string& path,
                       std::string_view identity,
                       const std::vector<ChosenAlgorithm>& algorithms);

}  // namespace baton::cuda
