#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/base/status.h"
#include "common/model/file_tensor.h"

namespace baton {

// A metadata array of numbers or booleans. Kept as bytes of the file, because copies widened to 64
// bits would triple the memory of a vocabulary.
struct GgufArray {
  uint32_t type = 0;  // GGUF value type of the elements
  uint64_t count = 0;
  std::span<const std::byte> bytes;
};

// A metadata value. Integers of every width are stored as int64 (a uint64 above 2⁶³−1 is refused),
// both float types as double. Strings are views into the file.
using GgufValue =
    std::variant<bool, int64_t, double, std::string_view, std::vector<std::string_view>, GgufArray>;

// A GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little
// endian: metadata and tensors. Every length and offset is checked when opened. Immutable, so
// thread-safe.
class GgufFile final {
 public:
  // Maps the file and, when it is the first part of a split model, the other parts, whose tensors
  // follow its own. Errors: those of MappedFile::Open and OpenOtherParts (gguf_split.h);
  // InvalidArgument naming file, key or tensor, and byte.
  static StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // Maps this file alone. Errors: those of MappedFile::Open and Parse.
  static StatusOr<std::unique_ptr<GgufFile>> OpenPart(const std::string& path);
  // The same for bytes in memory, which must outlive the result; `name` replaces the path in
  // errors.
  static StatusOr<std::unique_ptr<GgufFile>> Parse(std::string name,
                                                   std::span<const std::byte> bytes);

  const std::string& path() const { return path_; }
  bool Has(std::string_view key) const { return values_.contains(key); }
  // NotFound when the key is absent; InvalidArgument when it has another type. Errors name the key.
  StatusOr<int64_t> Int(std::string_view key) const;
  StatusOr<double> Float(std::string_view key) const;  // also accepts integers
  StatusOr<bool> Bool(std::string_view key) const;
  StatusOr<std::string_view> String(std::string_view key) const;
  StatusOr<std::vector<std::string_view>> Strings(std::string_view key) const;
  StatusOr<std::vector<int64_t>> Ints(std::string_view key) const;
  StatusOr<std::vector<bool>> Bools(std::string_view key) const;
  StatusOr<std::vector<double>> Floats(std::string_view key) const;

  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // MappedFile::DropPages of the file that has `part`, when it is mapped; no effect otherwise.
  void DropPages(std::span<const std::byte> part) const {
    if (mapping_ != nullptr) mapping_->DropPages(part);
    for (const auto& other : other_parts_) other->DropPages(part);
  }

 private:
  GgufFile(std::string path, std::span<const std::byte> bytes);
  Status ParseAll();
  Status ParseMetadata(class ByteReader& reader, uint64_t count);
  Status ParseTensors(class ByteReader& reader, uint64_t count);
  StatusOr<const GgufValue*> Find(std::string_view key) const;
  Status WrongType(std::string_view key, std::string_view wanted) const;

  std::string path_;
  std::span<const std::byte> bytes_;
  std::unique_ptr<MappedFile> mapping_;  // null for bytes in memory
  std::map<std::string, GgufValue, std::less<>> values_;
  std::vector<FileTensor> tensors_;
  std::vector<std::unique_ptr<GgufFile>> other_parts_;  // of a split model
};

}  // namespace baton
