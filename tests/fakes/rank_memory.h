#pragma once

#include <cstddef>

#include "kernels/device.h"

namespace baton {

// The memory of another rank, as the leader of its group sees it: `of`, which outlives this.
class RankMemory final : public Buffer {
 public:
  explicit RankMemory(const Buffer& of) : of_(of) {}
  MemoryKind kind() const override { return of_.kind(); }
  std::byte* data() const override { return of_.data(); }
  size_t size() const override { return of_.size(); }
  int shared_fd() const override { return of_.shared_fd(); }

 private:
  const Buffer& of_;
};

}  // namespace baton
