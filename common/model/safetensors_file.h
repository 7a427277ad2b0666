#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/base/status.h"
#include "common/model/file_tensor.h"

namespace baton {

// The name that safetensors files have for a type. Aborts for a type that they do not have.
std::string_view SafetensorsTypeName(DType dtype);

// One safetensors file (https://github.com/huggingface/safetensors#format): a JSON header of at
// most 100 MB, then tensors that fill the rest without gaps, at any alignment. Tensors of types
// other than F32, F16, BF16, F8_E4M3 and I8 are listed (FileTensor::other_type). Immutable, so
// thread-safe.
class SafetensorsFile final {
 public:
  // Maps the file. Errors: those of MappedFile::Open; InvalidArgument naming file and tensor.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  // The same for bytes in memory, which must outlive the result; `name` replaces the path in
  // errors.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Parse(std::string name,
                                                          std::span<const std::byte> bytes);

  const std::string& path() const { return path_; }
  // In the order of their bytes in the file.
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // MappedFile::DropPages when the file is mapped; no effect otherwise.
  void DropPages(std::span<const std::byte> part) const {
    if (mapping_ != nullptr) mapping_->DropPages(part);
  }

 private:
  SafetensorsFile(std::string path, std::vector<FileTensor> tensors)
      : path_(std::move(path)), tensors_(std::move(tensors)) {}

  std::string path_;
  std::unique_ptr<MappedFile> mapping_;  // null for bytes in memory
  std::vector<FileTensor> tensors_;
};

}  // namespace baton
