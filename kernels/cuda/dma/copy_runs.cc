#include "kernels/cuda/dma/copy_runs.h"

#include "kernels/cuda/dma/row_copies.h"

namespace baton::cuda {
namespace {

// The minimum number of rows of a 2-D copy. Fewer runs become single copies in a batch.
constexpr uint64_t kMinRows = 4;
// SMs copy runs of up to this size faster than copy engines do (notes/dma.md).
constexpr uint64_t kShortRun = uint64_t{256} << 10;
constexpr uint64_t kMaxPitch = (uint64_t{1} << 31) - 1;

std::vector<CopyRun> JoinNeighbours(std::span<const CopyRun> runs) {
  std::vector<CopyRun> joined;
  joined.reserve(runs.size());
  for (const CopyRun& run : runs) {
    if (run.bytes == 0) continue;
    if (!joined.empty() && joined.back().source + joined.back().bytes == run.source &&
        joined.back().destination + joined.back().bytes == run.destination) {
      joined.back().bytes += run.bytes;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

// The number of leading runs that have equal sizes and lie at equal, positive distances.
size_t CountRegularRuns(std::span<const CopyRun> runs) {
  if (runs.size() < 2 || runs[1].source <= runs[0].source ||
      runs[1].destination <= runs[0].destination) {
    return 1;
  }
  const uint64_t source_pitch = runs[1].source - runs[0].source;
  const uint64_t destination_pitch = runs[1].destination - runs[0].destination;
  const auto fits = [&](uint64_t pitch) { return pitch >= runs[0].bytes && pitch <= kMaxPitch; };
  if (!fits(source_pitch) || !fits(destination_pitch)) return 1;
  size_t count = 1;
  while (count < runs.size() && runs[count].bytes == runs[0].bytes &&
         runs[count].source == runs[count - 1].source + source_pitch &&
         runs[count].destination == runs[count - 1].destination + destination_pitch) {
    ++count;
  }
  return count;
}

cudaError_t CopyBatch(std::vector<const void*>& sources,
                      std::vector<void*>& destinations,
                      std::vector<size_t>& sizes,
                      cudaStream_t stream) {
  if (sizes.empty()) return cudaSuccess;
  if (sizes.size() == 1) {
    return cudaMemcpyAsync(destinations[0], sources[0], sizes[0], cudaMemcpyDefault, stream);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  return cudaMemcpyBatchAsync(destinations.data(),
                              sources.data(),
                              sizes.data(),
                              sizes.size(),
                              &attributes,
                              &first,
                              1,
                              stream);
}

}  // namespace

std::vector<StridedCopy> PlanCopies(std::span<const CopyRun> runs) {
  const std::vector<CopyRun> joined = JoinNeighbours(runs);
  std::vector<StridedCopy> copies;
  for (size_t i = 0; i < joined.size();) {
    const size_t rows = CountRegularRuns(std::span(joined).subspan(i));
    if (rows < kMinRows) {
      copies.push_back({joined[i], 0, 0, 1});
      ++i;
      continue;
    }
    copies.push_back({joined[i],
                      joined[i + 1].source - joined[i].source,
                      joined[i + 1].destination - joined[i].destination,
                      rows});
    i += rows;
  }
  return copies;
}

cudaError_t CopyRuns(const std::byte* from,
                     std::byte* to,
                     std::span<const CopyRun> runs,
                     Copiers copiers,
                     cudaStream_t stream) {
  const bool only_sms = copiers == Copiers::kSms || copiers == Copiers::kSmsOneBlockPerSm;
  std::vector<StridedCopy> by_sms;
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  std::vector<size_t> sizes;
  for (const StridedCopy& copy : PlanCopies(runs)) {
    const bool prefers_sms =
        only_sms || (copiers == Copiers::kEnginesAndSms && copy.first.bytes <= kShortRun);
    if (prefers_sms && SuitsRowKernel(copy, from, to)) {
      by_sms.push_back(copy);
      continue;
    }
    const std::byte* source = from + copy.first.source;
    std::byte* destination = to + copy.first.destination;
    if (copy.rows == 1) {
      sources.push_back(source);
      destinations.push_back(destination);
      sizes.push_back(copy.first.bytes);
      continue;
    }
    const cudaError_t error = cudaMemcpy2DAsync(destination,
                                                copy.destination_pitch,
                                                source,
                                                copy.source_pitch,
                                                copy.first.bytes,
                                                copy.rows,
                                                cudaMemcpyDefault,
                                                stream);
    if (error != cudaSuccess) return error;
  }
  const auto occupancy = copiers == Copiers::kSmsOneBlockPerSm ? RowCopyOccupancy::kOneBlockPerSm
                                                               : RowCopyOccupancy::kFull;
  for (const RowCopyArgs& launch : PlanRowCopies(by_sms, from, to)) {
    const cudaError_t error = LaunchRowCopies(launch, occupancy, stream);
    if (error != cudaSuccess) return error;
  }
  return CopyBatch(sources, destinations, sizes, stream);
}

}  // namespace baton::cuda
