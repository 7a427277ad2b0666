#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kvtransfer/wire/xxh3_kernel.h"

namespace baton {

// Computes the checksum (kernels/granule_checksum.h) of each granule of a byte stream that arrives
// in pieces. Not thread-safe.
class GranuleHasher final {
 public:
  explicit GranuleHasher(const Xxh3Kernel& kernel = BestXxh3());
  GranuleHasher(const GranuleHasher&) = delete;
  GranuleHasher& operator=(const GranuleHasher&) = delete;
  ~GranuleHasher();

  // Begins a new stream. Granule 0: computes no checksums.
  void Start(uint64_t granule);
  void Update(std::span<const std::byte> bytes) { Add(bytes, nullptr); }
  // Copies `bytes` to `to`, and updates in the same pass over memory.
  void Copy(std::byte* to, std::span<const std::byte> bytes);
  // The checksums of the granules completed since Start.
  std::vector<uint64_t> Take() { return std::exchange(checksums_, {}); }

 private:
  // Copies `bytes` to `to` too, unless `to` is null.
  void Add(std::span<const std::byte> bytes, std::byte* to);

  const Xxh3Kernel& kernel_;
  void* const state_;  // owned; its type belongs to the kernel
  uint64_t granule_ = 0;
  std::vector<uint64_t> parts_;  // checksums of the completed parts of the current granule
  uint64_t filled_ = 0;          // bytes hashed of the part after those
  std::vector<uint64_t> checksums_;
};

}  // namespace baton
