#include "kernels/cuda/block_checksum.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/block_kernels.h"
#include "kernels/cuda/cuda_status.h"

namespace baton::cuda {
namespace {

constexpr size_t kFirstRoom = 4096;
constexpr size_t kMostScratch = size_t{64} << 20;

}  // namespace

StatusOr<std::unique_ptr<BlockChecksums>> BlockChecksums::Create() {
  std::unique_ptr<BlockChecksums> checksums(new BlockChecksums());
  BATON_ASSIGN_OR_RETURN(checksums->offsets_, StepBuffer::Create(kFirstRoom));
  return checksums;
}

Status BlockChecksums::Reserve(size_t count, uint64_t bytes) {
  const std::vector<uint64_t> offsets(count);
  bool fits = false;
  while (!fits) {
    offsets_->Clear();
    offsets_->Write(std::span<const uint64_t>(offsets));
    BATON_ASSIGN_OR_RETURN(fits, offsets_->Fits());
  }
  return sums_.Reserve(count * ChecksumSums(bytes) * sizeof(uint64_t));
}

Status BlockChecksums::Launch(const std::byte* base,
                              std::span<const uint64_t> offsets,
                              uint64_t bytes,
                              std::span<uint64_t> out,
                              cudaStream_t stream) {
  BATON_CHECK(offsets.size() == out.size() && offsets.size() <= kMostAtOnce,
              "{} pieces, {} results",
              offsets.size(),
              out.size());
  const auto odd = [&](uint64_t offset) {
    return (reinterpret_cast<uintptr_t>(base) + offset) % kAlignment != 0;
  };
  if (bytes < kLeastBytes || bytes % kAlignment != 0 ||
      std::any_of(offsets.begin(), offsets.end(), odd)) {
    return InvalidArgument(
        "checksums of {} bytes; the device takes multiples of {} from {} on, at such addresses",
        bytes,
        kAlignment,
        kLeastBytes);
  }
  const size_t sums = ChecksumSums(bytes) * sizeof(uint64_t);
  BATON_RETURN_IF_ERROR(sums_.Reserve(offsets.size() * sums));
  ChecksumArgs args;
  bool fits = false;
  while (!fits) {
    offsets_->Clear();
    args.offsets = offsets_->Write(offsets);
    BATON_ASSIGN_OR_RETURN(fits, offsets_->Fits());
  }
  args.base = base;
  args.count = static_cast<int32_t>(offsets.size());
  args.bytes = bytes;
  args.sums = sums_.at<uint64_t>();
  args.out = out.data();
  BATON_CUDA_RETURN_IF_ERROR(offsets_->Upload(stream));
  return ToStatus(LaunchChecksums(args, stream), "checksums");
}

Status BlockChecksums::Compute(const std::byte* base,
                               std::span<const uint64_t> offsets,
                               uint64_t bytes,
                               std::span<uint64_t> out,
                               cudaStream_t stream) {
  BATON_CHECK(offsets.size() == out.size(), "{} pieces, {} results", offsets.size(), out.size());
  const size_t sums = ChecksumSums(bytes) * sizeof(uint64_t);
  const size_t most = std::clamp(kMostScratch / sums, size_t{1}, kMostAtOnce);
  BATON_RETURN_IF_ERROR(results_.Reserve(std::min(most, offsets.size()) * sizeof(uint64_t)));
  for (size_t done = 0; done < offsets.size();) {
    const size_t count = std::min(offsets.size() - done, most);
    const std::span<uint64_t> results(reinterpret_cast<uint64_t*>(results_.data()), count);
    BATON_RETURN_IF_ERROR(Launch(base, offsets.subspan(done, count), bytes, results, stream));
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
    std::copy(results.begin(), results.end(), out.begin() + static_cast<ptrdiff_t>(done));
    done += count;
  }
  return OkStatus();
}

}  // namespace baton::cuda
