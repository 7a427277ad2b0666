#include "kernels/cpu/state_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace baton::cpu {
namespace {

// Calls body(address in the arena, offset from `first`, length) for each run of bytes that are in
// one block.
template <class Body>
void ForRuns(const KvView& kv,
             std::span<const int32_t> blocks,
             int64_t first,
             int64_t bytes,
             const Body& body) {
  const int64_t block_bytes = kv.state.block_bytes;
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = first + done;
    const int64_t in_block = at % block_bytes;
    const int64_t length = std::min(bytes - done, block_bytes - in_block);
    const int32_t block = blocks[static_cast<size_t>(at / block_bytes)];
    body(kv.base + block * kv.block_stride + in_block, done, static_cast<size_t>(length));
    done += length;
  }
}

}  // namespace

void ReadState(const KvView& kv,
               std::span<const int32_t> blocks,
               int64_t first,
               std::span<float> to) {
  const std::span<std::byte> bytes = std::as_writable_bytes(to);
  ForRuns(kv,
          blocks,
          first,
          static_cast<int64_t>(bytes.size()),
          [&](const std::byte* run, int64_t offset, size_t length) {
            std::memcpy(bytes.data() + offset, run, length);
          });
}

void WriteState(const KvView& kv,
                std::span<const int32_t> blocks,
                int64_t first,
                std::span<const float> from) {
  const std::span<const std::byte> bytes = std::as_bytes(from);
  ForRuns(kv,
          blocks,
          first,
          static_cast<int64_t>(bytes.size()),
          [&](std::byte* run, int64_t offset, size_t length) {
            std::memcpy(run, bytes.data() + offset, length);
          });
}

}  // namespace baton::cpu
