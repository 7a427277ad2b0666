#include "kernels/cuda/dma/block_checksum.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/dma/checksum_kernel.h"

namespace baton::cuda {

bool BlockChecksums::Supports(uint64_t bytes) {
  if (bytes == 0 || bytes % kAlignment != 0) return false;
  return ChecksumPartBytes(bytes, ChecksumParts(bytes) - 1) >= kMinBytes;
}

Status BlockChecksums::Launch(const std::byte* base,
                              std::span<const uint64_t> offsets,
                              uint64_t bytes,
                              std::span<uint64_t> out,
                              cudaStream_t stream) {
  const uint64_t parts = ChecksumParts(bytes);
  BATON_CHECK(out.size() == offsets.size() * parts,
              "{} granules of {} parts, {} results",
              offsets.size(),
              parts,
              out.size());
  const auto is_unaligned = [&](uint64_t offset) {
    return (reinterpret_cast<uintptr_t>(base) + offset) % kAlignment != 0;
  };
  if (!Supports(bytes) || std::any_of(offsets.begin(), offsets.end(), is_unaligned)) {
    return InvalidArgument(
        "the device cannot compute checksums of granules of {} bytes at these addresses: sizes and "
        "addresses must be multiples of {}, and the last part of a granule, after parts of {} "
        "bytes, must have at least {} bytes",
        bytes,
        kAlignment,
        kChecksumPartBytes,
        kMinBytes);
  }
  ChecksumArgs args;
  args.base = base;
  args.bytes = bytes;
  args.out = out.data();
  while (!offsets.empty()) {
    const size_t count = std::min(offsets.size(), ChecksumArgs::kMaxGranules);
    args.count = static_cast<uint32_t>(count);
    std::copy_n(offsets.begin(), count, args.offsets);
    BATON_CUDA_RETURN_IF_ERROR(LaunchChecksums(args, stream));
    args.out += count * parts;
    offsets = offsets.subspan(count);
  }
  return OkStatus();
}

Status BlockChecksums::Compute(const std::byte* base,
                               std::span<const uint64_t> offsets,
                               uint64_t bytes,
                               std::span<uint64_t> out,
                               cudaStream_t stream) {
  BATON_CHECK(offsets.size() == out.size(), "{} granules, {} results", offsets.size(), out.size());
  const size_t parts = ChecksumParts(bytes);
  BATON_RETURN_IF_ERROR(parts_.Reserve(offsets.size() * parts * sizeof(uint64_t)));
  const std::span<uint64_t> sums(reinterpret_cast<uint64_t*>(parts_.data()),
                                 offsets.size() * parts);
  BATON_RETURN_IF_ERROR(Launch(base, offsets, bytes, sums, stream));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = JoinChecksumParts(sums.subspan(i * parts, parts));
  }
  return OkStatus();
}

}  // namespace baton::cuda
