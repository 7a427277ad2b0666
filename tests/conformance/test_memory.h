#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/device.h"

namespace baton {

// Memory of any device, for transports under test, with functions to read and change it.
class TestMemory final {
 public:
  // The device must outlive the memory.
  TestMemory(Device& device, size_t bytes) : device_(device) {
    auto buffer = device.Allocate(bytes, Sharing::kShared);
    BATON_CHECK(buffer.ok(), "{}", Message(buffer.status()));
    buffer_ = *std::move(buffer);
  }

  const Buffer& buffer() const { return *buffer_; }
  size_t size() const { return buffer_->size(); }
  void Put(size_t offset, std::span<const std::byte> bytes) {
    const Status done = device_.CopyIn(*buffer_, offset, bytes);
    BATON_CHECK(done.ok(), "{}", Message(done));
  }
  // Sets all bytes to `value`.
  void Fill(std::byte value) { Put(0, std::vector<std::byte>(size(), value)); }
  std::vector<std::byte> Get(size_t offset, size_t bytes) const {
    std::vector<std::byte> out(bytes);
    const Status done = device_.CopyOut(*buffer_, offset, out);
    BATON_CHECK(done.ok(), "{}", Message(done));
    return out;
  }
  std::vector<std::byte> GetAll() const { return Get(0, size()); }

 private:
  Device& device_;
  std::unique_ptr<Buffer> buffer_;
};

// Fills `bytes` with a pattern that differs for every seed and offset.
inline void FillPattern(std::span<std::byte> bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t mixed = (seed * 0x9e3779b97f4a7c15u + i) * 0xff51afd7ed558ccdu;
    bytes[i] = static_cast<std::byte>(mixed >> 56);
  }
}

inline std::vector<std::byte> Pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> pattern(bytes);
  FillPattern(pattern, seed);
  return pattern;
}

}  // namespace baton
