#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

struct XXH3_state_s;

namespace baton {

// XXH3-64 of each granule of a stream of bytes that comes in pieces. Not thread-safe.
class GranuleHasher final {
 public:
  GranuleHasher();
  ~GranuleHasher();

  // Forgets everything; granule 0: hashes nothing.
  void Start(uint64_t granule);
  void Update(std::span<const std::byte> bytes);
  // The checksums of the granules completed since Start.
  std::vector<uint64_t> Take() { return std::exchange(checksums_, {}); }

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };

  std::unique_ptr<XXH3_state_s, Free> state_;
  uint64_t granule_ = 0;
  uint64_t filled_ = 0;  // of the current granule
  std::vector<uint64_t> checksums_;
};

}  // namespace baton
