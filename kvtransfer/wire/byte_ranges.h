#pragma once

#include <span>
#include <vector>

#include "kvtransfer/transport.h"

// Lists of byte ranges in which no range continues the one before it. A write between ranks of
// unequal shapes has many short runs, but on one of its two sides they lie together: there it
// becomes few ranges.
namespace baton {

// Appends `range`, or lengthens the last range if `range` continues it.
inline void AppendRange(std::vector<ByteRange>& ranges, const ByteRange& range) {
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == range.offset) {
    ranges.back().bytes += range.bytes;
  } else {
    ranges.push_back(range);
  }
}

// What the runs read, and what they write, in their order.
std::vector<ByteRange> SourceRanges(std::span<const WriteRun> runs);
std::vector<ByteRange> DestinationRanges(std::span<const WriteRun> runs);

}  // namespace baton
