#include "kernels/cuda/dma/checksum_task.h"

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/dma/block_checksum.h"
#include "kernels/cuda/dma/copy_runs.h"
#include "kernels/granule_checksum.h"
#include "kernels/packed_runs.h"

namespace baton::cuda {
namespace {

// The offset of each granule. Empty unless each granule lies within one range, at an aligned
// address.
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
  constexpr size_t kGranuleBytes = kBatchBytes / kBatchGranules;
  std::unique_ptr<ChecksumTask> task(new ChecksumTask(stream));
  BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&task->ended_, cudaEventDisableTiming));
  constexpr size_t kMaxParts = kBatchBytes / kChecksumPartBytes + kBatchGranules;
  BATON_RETURN_IF_ERROR(task->host_.Reserve(kMaxParts * sizeof(uint64_t)));
  BATON_RETURN_IF_ERROR(task->gathered_.Reserve(kGranuleBytes));
  task->granule_ = kGranuleBytes;
  const uint64_t first = 0;
  BATON_RETURN_IF_ERROR(task->IssueChecksums(task->gathered_->at(), {&first, 1}));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  return task;
}

ChecksumTask::~ChecksumTask() {
  if (ended_ != nullptr) cudaEventDestroy(ended_);
}

Status ChecksumTask::Start(std::span<const Request> requests) {
  const Buffer& buffer = *requests.front().buffer;
  granule_ = requests.front().granule;
  requests_.clear();
  std::vector<ByteRange> ranges;
  uint64_t bytes = 0;
  for (const Request& request : requests) {
    requests_.emplace_back(request.id, request.bytes / granule_);
    ranges.insert(ranges.end(), request.ranges.begin(), request.ranges.end());
    bytes += request.bytes;
  }
  on_host_ = !BlockChecksums::Supports(granule_);
  if (!on_host_) {
    const std::vector<uint64_t> offsets = GranuleOffsets(ranges, granule_);
    if (!offsets.empty()) return IssueChecksums(buffer.data(), offsets);
  }
  BATON_RETURN_IF_ERROR(on_host_ ? host_.Reserve(bytes) : gathered_.Reserve(bytes));
  std::byte* to = on_host_ ? host_->data() : gathered_->at();
  const Copiers copiers = on_host_ ? Copiers::kEngines : Copiers::kSms;
  BATON_CUDA_RETURN_IF_ERROR(CopyRuns(buffer.data(), to, GatherRuns(ranges, 0), copiers, stream_));
  if (on_host_)
    return ToStatus(cudaEventRecord(ended_, stream_), "recording the end of a checksum");
  std::vector<uint64_t> offsets(bytes / granule_);
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = i * granule_;
  return IssueChecksums(gathered_->at(), offsets);
}

Status ChecksumTask::IssueChecksums(const std::byte* base, std::span<const uint64_t> offsets) {
  const size_t parts = offsets.size() * ChecksumParts(granule_);
  BATON_RETURN_IF_ERROR(host_.Reserve(parts * sizeof(uint64_t)));
  const std::span<uint64_t> sums(reinterpret_cast<uint64_t*>(host_->data()), parts);
  BATON_RETURN_IF_ERROR(BlockChecksums::Launch(base, offsets, granule_, sums, stream_));
  return ToStatus(cudaEventRecord(ended_, stream_), "recording the end of a checksum");
}

uint64_t ChecksumTask::Checksum(size_t granule) const {
  if (on_host_) return GranuleChecksum({host_->data() + granule * granule_, granule_});
  const size_t parts = ChecksumParts(granule_);
  return JoinChecksumParts(
      {reinterpret_cast<const uint64_t*>(host_->data()) + granule * parts, parts});
}

std::vector<DmaDone> ChecksumTask::Take() const {
  std::vector<DmaDone> done;
  size_t at = 0;
  for (const auto& [id, count] : requests_) {
    DmaDone& end = done.emplace_back();
    end.id = id;
    for (size_t i = at; i < at + count; ++i) end.checksums.push_back(Checksum(i));
    at += count;
  }
  return done;
}

std::vector<DmaDone> ChecksumTask::Fail(const Status& status) const {
  std::vector<DmaDone> done;
  for (const auto& [id, count] : requests_) done.push_back({id, status, {}});
  return done;
}

}  // namespace baton::cuda
