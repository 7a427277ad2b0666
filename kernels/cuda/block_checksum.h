#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/pinned_memory.h"
#include "kernels/cuda/step_buffer.h"

namespace baton::cuda {

// XXH3-64 (https://github.com/Cyan4973/xxHash, default secret, seed 0) of many equally long pieces
// of device memory at once: the checksums of a KV hand-off. XXH3 sums each 1,024 bytes on their
// own, and only the 64-byte sums are joined one after the other: the first kernel reads at memory
// speed, the second needs ~25 ns for each 1,024 bytes of a piece, all pieces side by side. One
// thread.
class BlockChecksums final {
 public:
  // XXH3 takes shorter input another way.
  static constexpr uint64_t kLeastBytes = 241;
  static constexpr uint64_t kAlignment = 16;    // of addresses and sizes
  static constexpr size_t kMostAtOnce = 65535;  // thread blocks in a grid's second dimension

  static StatusOr<std::unique_ptr<BlockChecksums>> Create();

  // Makes room for `count` pieces of `bytes` bytes, so that Launch allocates nothing up to there.
  Status Reserve(size_t count, uint64_t bytes);
  // Issues the checksums of up to kMostAtOnce pieces, which are in `out` (pinned memory) when the
  // stream has come there. The launch before must be over. Errors: as Compute.
  Status Launch(const std::byte* base,
                std::span<const uint64_t> offsets,
                uint64_t bytes,
                std::span<uint64_t> out,
                cudaStream_t stream);
  // out[i] is the checksum of the `bytes` bytes at base + offsets[i]; waits for `stream`. Errors:
  // InvalidArgument when `bytes` is below kLeastBytes or not a multiple of 16, or an address is not
  // aligned to 16; ResourceExhausted.
  Status Compute(const std::byte* base,
                 std::span<const uint64_t> offsets,
                 uint64_t bytes,
                 std::span<uint64_t> out,
                 cudaStream_t stream);

 private:
  BlockChecksums() = default;
  std::unique_ptr<StepBuffer> offsets_;
  DeviceMemory sums_;
  PinnedMemory results_;
};

}  // namespace baton::cuda
