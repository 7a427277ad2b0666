#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/mapped_file.h"
#include "common/base/status.h"
#include "common/model/file_tensor.h"

namespace baton {

// One safetensors file (https://github.com/huggingface/safetensors#format): a JSON header of at
// most 100 MB, then tensors that fill the rest without holes, at any alignment. Tensors of other
// types than F32, F16 and BF16 are listed (FileTensor::other_type). Immutable, so thread-safe.
class SafetensorsFile final {
 public:
  // Maps the file. Errors: those of MappedFile::Open; InvalidArgument naming file and tensor.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  // The same for bytes in memory, which must outlive the result; `name` stands for the path.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Parse(std::string name,
                                                          std::span<const std::byte> bytes);

  const std::string& path() const { return path_; }
  // In the order of their bytes.
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // MappedFile::DropPages, when the file is mapped and `part` lies in it.
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

// The weight files of a Hugging Face directory: those that model.safetensors.index.json lists, or
// model.safetensors alone. Every file of an index must lie in the directory and hold the tensors
// the index says.
StatusOr<std::vector<std::unique_ptr<SafetensorsFile>>> OpenSafetensorsDirectory(
    const std::string& directory);

}  // namespace baton
