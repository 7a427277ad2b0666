#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"

namespace baton {

// A new cluster secret in a file that only this user can read. The destructor removes the file.
class TemporarySecretFile final {
 public:
  static StatusOr<std::unique_ptr<TemporarySecretFile>> Create();
  ~TemporarySecretFile();
  TemporarySecretFile(const TemporarySecretFile&) = delete;
  TemporarySecretFile& operator=(const TemporarySecretFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporarySecretFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace baton
