#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// Reads little-endian numbers and strings from untrusted bytes, never beyond their end. After the
// first failure all reads return zeros, and status() names the value that could not be read and its
// position. Does not own the bytes.
class ByteReader final {
 public:
  ByteReader(std::string_view file, std::span<const std::byte> bytes)
      : file_(file), bytes_(bytes) {}

  template <class T>
  T Read(std::string_view what) {
    T value{};
    if (Need(sizeof(T), what)) {
      std::memcpy(&value, bytes_.data() + position_, sizeof(T));
      position_ += sizeof(T);
    }
    return value;
  }

  std::span<const std::byte> ReadBytes(uint64_t count, std::string_view what) {
    if (!Need(count, what)) return {};
    const auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  // Reads a 64-bit length and then that many bytes.
  std::string_view ReadString(std::string_view what) {
    const auto bytes = ReadBytes(Read<uint64_t>(what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const std::string& file() const { return file_; }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  bool Need(uint64_t count, std::string_view what) {
    if (!status_.ok()) return false;
    if (count <= remaining()) return true;
    status_ = InvalidArgument("{}: truncated: {} at byte {} needs {} bytes, {} are left",
                              file_,
                              what,
                              position_,
                              count,
                              remaining());
    return false;
  }

  std::string file_;
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  Status status_;
};

}  // namespace baton
