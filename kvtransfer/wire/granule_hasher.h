#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kvtransfer/wire/xxh3_kernel.h"

namespace baton {

// The checksum (kernels/granule_checksum.h) of each granule of a stream of bytes that comes in
// pieces. Not thread-safe.
class GranuleHasher final {
 public:
  explicit GranuleHasher(const Xxh3Kernel& kernel = BestXxh3());
  GranuleHasher(const GranuleHasher&) = delete;
  GranuleHasher& operator=(const GranuleHasher&) = delete;
  ~GranuleHasher();

  // Forgets everything; granule 0: hashes nothing.
  void Start(uint64_t granule);
  void Update(std::span<const std::byte> bytes);
  // The checksums of the granules completed since Start.
  std::vector<uint64_t> Take() { return std::exchange(checksums_, {}); }

 private:
  const Xxh3Kernel& kernel_;
  void* const state_;  // owned; of the kernel's own type
  uint64_t granule_ = 0;
  std::vector<uint64_t> parts_;  // of the current granule: sums of those completed
  uint64_t filled_ = 0;          // bytes of its next part
  std::vector<uint64_t> checksums_;
};

}  // namespace baton
