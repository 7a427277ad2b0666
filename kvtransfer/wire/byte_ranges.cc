#include "kvtransfer/wire/byte_ranges.h"

namespace baton {
namespace {

// The ranges that the runs have on the side `offset`.
template <uint64_t WriteRun::*offset>
std::vector<ByteRange> RangesOf(std::span<const WriteRun> runs) {
  std::vector<ByteRange> ranges;
  ranges.reserve(runs.size());
  for (size_t i = 0; i < runs.size();) {
    ByteRange range{runs[i].*offset, runs[i].bytes};
    while (++i < runs.size() && runs[i].*offset == range.offset + range.bytes) {
      range.bytes += runs[i].bytes;
    }
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

std::vector<ByteRange> SourceRanges(std::span<const WriteRun> runs) {
  return RangesOf<&WriteRun::source>(runs);
}

std::vector<ByteRange> DestinationRanges(std::span<const WriteRun> runs) {
  return RangesOf<&WriteRun::destination>(runs);
}

}  // namespace baton
