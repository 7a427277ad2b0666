#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

// Writes GGUF files in memory (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), for
// tests.
class GgufWriter final {
 public:
  void SetUint32(std::string_view key, uint32_t value) { Scalar(key, 4, value); }
  void SetInt64(std::string_view key, int64_t value) { Scalar(key, 11, value); }
  void SetUint64(std::string_view key, uint64_t value) { Scalar(key, 10, value); }
  void SetInt8(std::string_view key, int8_t value) { Scalar(key, 1, value); }
  void SetFloat(std::string_view key, float value) { Scalar(key, 6, value); }
  void SetDouble(std::string_view key, double value) { Scalar(key, 12, value); }
  void SetBool(std::string_view key, bool value) { Scalar(key, 7, static_cast<uint8_t>(value)); }
  void SetString(std::string_view key, std::string_view value);
  void SetStrings(std::string_view key, std::span<const std::string> values);
  void SetInt32s(std::string_view key, std::span<const int32_t> values);
  void SetFloats(std::string_view key, std::span<const float> values);
  // Sets a key with the given type number and raw payload, which are not checked.
  void SetRaw(std::string_view key, uint32_t type, std::span<const std::byte> payload);

  // `shape` has the outermost dimension first.
  void AddTensor(std::string_view name,
                 DType dtype,
                 std::span<const int64_t> shape,
                 std::span<const std::byte> bytes);

  std::vector<std::byte> Finish(uint32_t version = 3) const;

  // The parts of a split model with the same tensors: `count` writers with the keys of llama.cpp's
  // gguf-split. The first one also has all keys of this writer.
  std::vector<GgufWriter> Split(uint32_t count) const;

 private:
  struct Entry {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };

  template <class T>
  void Scalar(std::string_view key, uint32_t type, T value) {
    std::byte bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    SetRaw(key, type, bytes);
  }

  std::vector<std::byte> metadata_;
  uint64_t keys_ = 0;
  std::vector<Entry> tensors_;
};

// The ggml number of a tensor type.
uint32_t GgmlType(DType dtype);

// Appends the bytes of a trivially copyable value.
template <class T>
void AppendBytes(std::vector<std::byte>& to, const T& value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), first, first + sizeof(T));
}

}  // namespace baton
