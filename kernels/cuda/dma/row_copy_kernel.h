#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

// The arguments of the kernel that copies rows of bytes within this GPU's memory, or between this
// GPU's memory and imported memory of a peer. Addresses, pitches and row sizes are multiples of
// kAlignment bytes.
struct RowCopyArgs {
  static constexpr uint64_t kAlignment = 16;
  static constexpr size_t kMaxCopies = 64;
  // The number of bytes that one thread block copies. It is small, so that a thread block ends
  // within a few microseconds. A kernel of a step may wait for its SM.
  static constexpr uint64_t kBlockBytes = uint64_t{32} << 10;

  struct Copy {
    const std::byte* source = nullptr;
    std::byte* destination = nullptr;
    uint64_t source_pitch = 0;  // bytes from one row to the next
    uint64_t destination_pitch = 0;
    uint32_t row_bytes = 0;
    uint32_t rows = 0;
    // The index of the first thread block of this copy. The thread blocks of a copy are
    // consecutive.
    uint32_t first_block = 0;

    uint64_t bytes() const { return uint64_t{row_bytes} * rows; }
    uint32_t blocks() const {
      return static_cast<uint32_t>((bytes() + kBlockBytes - 1) / kBlockBytes);
    }
  };

  uint32_t count = 0;
  Copy copies[kMaxCopies] = {};  // [count]; passed with the launch
};

// How many thread blocks run on an SM at a time.
enum class RowCopyOccupancy {
  kFull,           // as many as fit; they take nearly all memory bandwidth
  kOneBlockPerSm,  // leaves memory bandwidth for concurrent transfers of NCCL
};

// Loads the kernel for the current device. Must be called before the first launch on the device,
// because loading the kernel then could wait for all work of the device.
cudaError_t LoadRowCopyKernel();
cudaError_t LaunchRowCopies(const RowCopyArgs& args,
                            RowCopyOccupancy occupancy,
                            cudaStream_t stream);

}  // namespace baton::cuda
