#include "kernels/cuda/checksum_task.h"

#include <algorithm>
#include <utility>

#include "common/base/hash.h"
#include "kernels/cuda/copy_runs.h"
#include "kernels/cuda/cuda_status.h"

namespace baton::cuda {
namespace {

constexpr size_t kUsualGranules = 512;
constexpr size_t kUsualGranuleBytes = size_t{64} << 10;

// Where each granule begins, when each lies in one range at an aligned address; else nothing.
std::vector<uint64_t> GranuleOffsets(std::span<const ByteRange> ranges, uint64_t granule) {
  std::vector<uint64_t> offsets;
  for (const ByteRange& range : ranges) {
    if (range.bytes % granule != 0 || range.offset % BlockChecksums::kAlignment != 0) return {};
    for (uint64_t at = 0; at < range.bytes; at += granule) offsets.push_back(range.offset + at);
  }
  return offsets;
}

}  // namespace

StatusOr<std::unique_ptr<ChecksumTask>> ChecksumTask::Create(cudaStream_t stream) {
  std::unique_ptr<ChecksumTask> task(new ChecksumTask(stream));
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&task->ended_, cudaEventDisableTiming));
  BATON_ASSIGN_OR_RETURN(task->checksums_, BlockChecksums::Create());
  BATON_RETURN_IF_ERROR(task->ReserveHost(kUsualGranules * sizeof(uint64_t)));
  BATON_RETURN_IF_ERROR(task->checksums_->Reserve(kUsualGranules, kUsualGranuleBytes));
  BATON_RETURN_IF_ERROR(task->gathered_.Reserve(kUsualGranuleBytes));
  task->granule_ = kUsualGranuleBytes;
  const uint64_t first = 0;
  BATON_RETURN_IF_ERROR(task->Sum(task->gathered_.at(), {&first, 1}));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return task;
}

ChecksumTask::~ChecksumTask() {
  if (ended_ != nullptr) cudaEventDestroy(ended_);
  cudaFreeHost(host_);
}

Status ChecksumTask::ReserveHost(size_t bytes) {
  if (bytes <= host_bytes_) return OkStatus();
  cudaFreeHost(std::exchange(host_, nullptr));
  host_bytes_ = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaMallocHost(reinterpret_cast<void**>(&host_), bytes));
  host_bytes_ = bytes;
  return OkStatus();
}

Status ChecksumTask::Start(uint64_t id,
                           const Buffer& of,
                           std::span<const ByteRange> ranges,
                           uint64_t granule) {
  id_ = id;
  granule_ = granule;
  on_host_ = granule < BlockChecksums::kLeastBytes || granule % BlockChecksums::kAlignment != 0;
  if (!on_host_) {
    const std::vector<uint64_t> offsets = GranuleOffsets(ranges, granule);
    if (!offsets.empty()) return Sum(of.data(), offsets);
  }
  std::vector<CopyRun> runs;
  uint64_t bytes = 0;
  for (const ByteRange& range : ranges) {
    runs.push_back({range.offset, bytes, range.bytes});
    bytes += range.bytes;
  }
  if (on_host_) {
    BATON_RETURN_IF_ERROR(ReserveHost(bytes));
  } else {
    BATON_RETURN_IF_ERROR(gathered_.Reserve(bytes));
  }
  std::byte* to = on_host_ ? host_ : gathered_.at();
  BATON_CUDA_RETURN_IF_ERROR(CopyRuns(of.data(), to, runs, stream_));
  count_ = bytes / granule;
  if (on_host_) return ToStatus(cudaEventRecord(ended_, stream_), "ending a checksum");
  std::vector<uint64_t> offsets(count_);
  for (size_t i = 0; i < count_; ++i) offsets[i] = i * granule;
  return Sum(gathered_.at(), offsets);
}

Status ChecksumTask::Sum(const std::byte* base, std::span<const uint64_t> offsets) {
  count_ = offsets.size();
  BATON_RETURN_IF_ERROR(ReserveHost(count_ * sizeof(uint64_t)));
  BATON_RETURN_IF_ERROR(checksums_->Launch(
      base, offsets, granule_, {reinterpret_cast<uint64_t*>(host_), count_}, stream_));
  return ToStatus(cudaEventRecord(ended_, stream_), "ending a checksum");
}

std::vector<uint64_t> ChecksumTask::Take() const {
  if (!on_host_) {
    const auto* results = reinterpret_cast<const uint64_t*>(host_);
    return {results, results + count_};
  }
  std::vector<uint64_t> checksums(count_);
  for (size_t i = 0; i < count_; ++i) {
    checksums[i] = Xxh3({host_ + i * granule_, granule_});
  }
  return checksums;
}

}  // namespace baton::cuda
