#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/graph/step_ops.h"

namespace baton::cuda {

// Where an operand of an op is in memory: `rows` rows of `row_bytes` bytes each, `stride` bytes
// apart.
struct Place {
  const std::byte* data = nullptr;
  const std::byte* end = nullptr;
  int64_t rows = 1;
  int64_t row_bytes = 0;
  int64_t stride = 0;

  static Place Bytes(const void* data, int64_t bytes);
  static Place Of(const Tensor& x);
  static Place InputOf(const GemmProblem& problem);
  static Place OutputOf(const GemmProblem& problem);
  bool operator==(const Place& other) const {
    return data == other.data && end == other.end && rows == other.rows &&
           row_bytes == other.row_bytes;
  }
};

// Whether a byte of `b` may be in a row of `a`, where the bytes from the first to the last one of
// each overlap. Columns of one matrix that do not overlap are apart.
bool OverlapInRows(const Place& a, const Place& b);
// Whether some byte may belong to both.
inline bool Overlap(const Place& a, const Place& b) {
  return a.data < b.end && b.data < a.end && OverlapInRows(a, b);
}

// Appends the memory that an op reads and writes, without weights, the KV cache and what only its
// own kernels use.
void AppendPlaces(const StepOp& op, std::vector<Place>& reads, std::vector<Place>& writes);

}  // namespace baton::cuda
