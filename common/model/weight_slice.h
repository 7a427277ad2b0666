#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/status.h"
#include "kernels/tensor.h"

namespace baton {

// The indices begin … end − 1 of rows, columns, heads or experts.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// One of `count` parts of nearly equal size of the pieces of a weight (weights_hash.h).
struct PieceShare {
  int32_t index = 0;
  int32_t count = 1;
};

// The rows of a range of heads that have `head_dim` rows each. Without a range: none.
std::optional<IndexRange> RowsOfHeads(const std::optional<IndexRange>& heads, int64_t head_dim);

// A part of a matrix: a range of its rows (outputs), of its columns (inputs), or of both. Without a
// range: all of them.
struct MatrixSlice {
  std::optional<IndexRange> rows = {};
  std::optional<IndexRange> cols = {};
};

// The range of `size` indices that a caller wants; without `range`: all. InvalidArgument when the
// range is empty or not within [0, size). The message begins with `what`; `unit` names the indices,
// for example "rows".
StatusOr<IndexRange> ResolveRange(const std::optional<IndexRange>& range,
                                  int64_t size,
                                  std::string_view what,
                                  std::string_view unit);

// A view of a part of `whole`, which has all of its columns. Copies and reads no data. A range of
// columns must begin and end at multiples of the numbers in a block of the type (32 for q8_0, 256
// for q4_K, 1 for f32; WeightGroups::kCutColumns for weights with groups), or end with the matrix.
// Errors: InvalidArgument; the message begins with `what`, the name of the matrix, and names the
// range and the valid values.
StatusOr<HostMatrix> SliceOf(const HostMatrix& whole,
                             const MatrixSlice& slice,
                             std::string_view what);

}  // namespace baton
