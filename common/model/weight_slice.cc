#include "common/model/weight_slice.h"

namespace baton {

std::optional<IndexRange> RowsOfHeads(const std::optional<IndexRange>& heads, int64_t head_dim) {
  if (!heads) return std::nullopt;
  return IndexRange{heads->begin * head_dim, heads->end * head_dim};
}

StatusOr<IndexRange> ResolveRange(const std::optional<IndexRange>& range,
                                  int64_t size,
                                  std::string_view what,
                                  std::string_view unit) {
  if (!range) return IndexRange{0, size};
  if (range->begin < 0 || range->begin >= range->end || range->end > size) {
    return InvalidArgument("{}: {} [{}, {}) must be a range that is not empty within [0, {})",
                           what,
                           unit,
                           range->begin,
                           range->end,
                           size);
  }
  return *range;
}

StatusOr<HostMatrix> SliceOf(const HostMatrix& whole,
                             const MatrixSlice& slice,
                             std::string_view what) {
  BATON_ASSIGN_OR_RETURN(const IndexRange rows, ResolveRange(slice.rows, whole.rows, what, "rows"));
  BATON_ASSIGN_OR_RETURN(const IndexRange cols,
                         ResolveRange(slice.cols, whole.cols, what, "columns"));
  // Also where the scales have not been read, because files are only checked.
  const bool grouped = whole.groups.cols > 0;
  const auto block =
      grouped ? WeightGroups::kCutColumns : static_cast<int64_t>(ShapeOf(whole.dtype).elements);
  if (cols.begin % block != 0 || (cols.end % block != 0 && cols.end != whole.cols)) {
    return InvalidArgument(
        "{}: columns [{}, {}) must begin and end at multiples of {}, the block of {}",
        what,
        cols.begin,
        cols.end,
        block,
        Name(whole.dtype));
  }
  HostMatrix part = whole;
  part.rows = rows.size();
  part.cols = cols.size();
  part.first_row = rows.begin;
  part.first_col = cols.begin;
  part.groups.first_row += rows.begin;
  part.groups.first_col += cols.begin;
  part.whole_cols = whole.cols;
  if (whole.data != nullptr) {
    part.data = whole.Row(rows.begin) + RowBytes(whole.dtype, static_cast<size_t>(cols.begin));
  }
  return part;
}

}  // namespace baton
