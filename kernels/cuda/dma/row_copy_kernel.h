#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

// Arguments of the kernel that copies rows of bytes in GPU memory, also from and to a peer's memory
// that this GPU can access. Addresses, pitches and row sizes are multiples of kAlignment bytes.
struct RowCopyArgs {
  static constexpr uint64_t kAlignment = 16;
  static constexpr size_t kMaxCopies = 64;
  // What one thread block copies. Short, so that a thread block ends within a few microseconds: a
  // kernel of a step may wait for its SM.
  static constexpr uint64_t kBlockBytes = uint64_t{32} << 10;

  struct Copy {
    const std::byte* source = nullptr;
    std::byte* destination = nullptr;
    uint64_t source_pitch = 0;  // bytes from one row to the next
    uint64_t destination_pitch = 0;
    uint32_t row_bytes = 0;
    uint32_t rows = 0;
    // The first thread block of this copy; its thread blocks follow each other.
    uint32_t first_block = 0;

    uint64_t bytes() const { return uint64_t{row_bytes} * rows; }
    uint32_t blocks() const {
      return static_cast<uint32_t>((bytes() + kBlockBytes - 1) / kBlockBytes);
    }
  };

  uint32_t count = 0;
  Copy copies[kMaxCopies] = {};  // [count]; passed with the launch
};

// How many thread blocks an SM executes at a time. As many as fit take nearly all of the memory's
// bandwidth, which slows transfers of NCCL down that run meanwhile. One leaves enough to them.
enum class RowCopyOccupancy { kFull, kOneBlockPerSm };

// Loads the kernel for the current device; must be called before the first launch there. Loading at
// the first launch could wait for all work of the device.
cudaError_t LoadRowCopyKernel();
cudaError_t LaunchRowCopies(const RowCopyArgs& args,
                            RowCopyOccupancy occupancy,
                            cudaStream_t stream);

}  // namespace baton::cuda
