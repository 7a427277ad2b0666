#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/dma.h"

namespace baton {

// The copies of `ranges` of one buffer to consecutive bytes of another, from its offset `at` on.
inline std::vector<CopyRun> GatherRuns(std::span<const ByteRange> ranges, uint64_t at) {
  std::vector<CopyRun> runs;
  runs.reserve(ranges.size());
  for (const ByteRange& range : ranges) {
    runs.push_back({range.offset, at, range.bytes});
    at += range.bytes;
  }
  return runs;
}

// The copies in the other direction: of consecutive bytes, from the offset `at` on, to `ranges`.
inline std::vector<CopyRun> ScatterRuns(std::span<const ByteRange> ranges, uint64_t at) {
  std::vector<CopyRun> runs = GatherRuns(ranges, at);
  for (CopyRun& run : runs) std::swap(run.source, run.destination);
  return runs;
}

}  // namespace baton
